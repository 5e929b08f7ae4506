//! Protobuf's wire format, read in place. Enters: bytes from the network; leaves: fields that borrow from them. Nothing
//! is copied or allocated, no byte is looked at twice by one reader. Must not know any message.

/// What is wrong with the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage(pub &'static str);

/// The kind of a field that holds a number of variable length.
pub const NUMBER: u32 = 0;
/// The kind of a field that holds text, bytes, or a message.
pub const BYTES: u32 = 2;

/// The fields of a message, in the order of the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

/// Groups within groups deeper than this are refused, as protobuf's own readers do.
const MAX_DEPTH: u32 = 100;

impl<'a> Fields<'a> {
    /// The fields of the message with these bytes.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field's number and kind; `None` at the end. Its value is to be read or skipped before the next one.
    ///
    /// # Errors
    /// When the bytes are no message. There is no next field then.
    // As a call this costs half of the decoding; so do the ones below.
    #[inline(always)]
    #[expect(clippy::should_implement_trait, reason = "an iterator of results would go on after an error")]
    pub fn next(&mut self) -> Result<Option<(u32, u32)>, Damage> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        match u32::try_from(key) {
            Ok(key) if key >= 8 => Ok(Some((key >> 3, key & 7))),
            _ => Err(Damage("a field number that does not exist")),
        }
    }

    /// The value of a field of kind [`NUMBER`].
    ///
    /// # Errors
    /// When it is cut off or too long.
    #[inline(always)]
    pub fn number(&mut self) -> Result<u64, Damage> {
        self.varint()
    }

    /// The same as an `int32` or enum: the lowest 32 bits, as protobuf's own readers take them.
    ///
    /// # Errors
    /// When it is cut off or too long.
    #[inline(always)]
    pub fn int32(&mut self) -> Result<i32, Damage> {
        Ok(self.varint()? as i32)
    }

    /// The same as a `uint32`: the lowest 32 bits.
    ///
    /// # Errors
    /// When it is cut off or too long.
    #[inline(always)]
    pub fn uint32(&mut self) -> Result<u32, Damage> {
        Ok(self.varint()? as u32)
    }

    /// The value of a field of kind [`BYTES`].
    ///
    /// # Errors
    /// When it is cut off.
    #[inline(always)]
    pub fn bytes(&mut self) -> Result<&'a [u8], Damage> {
        let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        self.take(length)
    }

    /// The same as text.
    ///
    /// # Errors
    /// When it is cut off or no UTF-8.
    #[inline]
    pub fn text(&mut self) -> Result<&'a str, Damage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damage("a text is not UTF-8"))
    }

    /// Steps over the value of a field.
    ///
    /// # Errors
    /// When it is cut off, or of a kind that does not exist.
    #[inline(always)]
    pub fn skip(&mut self, field: u32, kind: u32) -> Result<(), Damage> {
        match kind {
            BYTES => self.bytes().map(drop),
            NUMBER => self.varint().map(drop),
            _ => self.skip_other(field, kind),
        }
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, Damage> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            [low, high, rest @ ..] if *high < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*low & 0x7f) | u64::from(*high) << 7)
            }
            [low, middle, high, rest @ ..] if *high < 0x80 => {
                self.rest = rest;
                let low = u64::from(*low & 0x7f) | u64::from(*middle & 0x7f) << 7;
                Ok(low | u64::from(*high) << 14)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Damage> {
        let mut number = 0;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            number |= u64::from(*byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                if index == 9 && *byte > 1 {
                    break;
                }
                self.rest = &self.rest[index + 1..];
                return Ok(number);
            }
        }
        Err(Damage(if self.rest.len() < 10 { "a number is cut off" } else { "a number is too long" }))
    }

    #[inline(always)]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Damage("a field is cut off"))?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Groups are followed by a loop: no depth of them costs stack.
    #[cold]
    fn skip_other(&mut self, field: u32, kind: u32) -> Result<(), Damage> {
        let mut open = Vec::new();
        let (mut field, mut kind) = (field, kind);
        loop {
            match kind {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => drop(self.bytes()?),
                3 if open.len() < MAX_DEPTH as usize => open.push(field),
                4 if open.last() == Some(&field) => drop(open.pop()),
                5 => drop(self.take(4)?),
                _ => return Err(Damage("a field of a kind that does not exist")),
            }
            if open.is_empty() {
                return Ok(());
            }
            (field, kind) = self.next()?.ok_or(Damage("a group is cut off"))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(PartialEq, Debug)]
    enum Value<'a> {
        Varint(u64),
        Bytes(&'a [u8]),
        Skipped,
    }

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Damage> {
        let (mut fields, mut all) = (Fields::of(bytes), Vec::new());
        while let Some((field, kind)) = fields.next()? {
            let value = match kind {
                NUMBER => Value::Varint(fields.number()?),
                BYTES => Value::Bytes(fields.bytes()?),
                _ => {
                    fields.skip(field, kind)?;
                    Value::Skipped
                }
            };
            all.push((field, value));
        }
        Ok(all)
    }

    #[test]
    fn every_kind_of_field() {
        let bytes = [8, 150, 1, 18, 2, b'h', b'i', 25, 1, 2, 3, 4, 5, 6, 7, 8, 37, 1, 2, 3, 4, 43, 8, 1, 44];
        let expected = [
            (1, Value::Varint(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Skipped),
            (4, Value::Skipped),
            (5, Value::Skipped),
        ];
        assert_eq!(fields(&bytes).unwrap(), expected);
        assert_eq!(fields(&[0xc2, 0x3e, 0]).unwrap(), [(1000, Value::Bytes(b""))]);
    }

    #[test]
    fn numbers_up_to_the_largest() {
        let mut bytes = vec![8];
        bytes.extend([0xff; 9]);
        bytes.push(1);
        assert_eq!(fields(&bytes).unwrap(), [(1, Value::Varint(u64::MAX))]);
        *bytes.last_mut().unwrap() = 2;
        assert!(fields(&bytes).is_err());
        bytes.pop();
        assert!(fields(&bytes).is_err());
    }

    #[test]
    fn damage_is_an_error() {
        for bytes in [
            &[8][..],
            &[8, 0x80],
            &[18, 2, 1],
            &[18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            &[0, 1],
            &[12],
            &[11],
            &[11, 20],
            &[14, 0],
            &[25, 1],
        ] {
            assert!(fields(bytes).is_err(), "{bytes:?}");
        }
        // Groups in groups without end.
        assert!(fields(&[11; 100_000]).is_err());
    }
}
