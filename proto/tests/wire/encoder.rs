//! Writes protobuf by hand. Enters: field numbers and values; leaves: bytes. Must not know the generated code:
//! the tests would otherwise only show that it agrees with itself.

/// A message under construction.
#[derive(Clone, Default)]
pub(crate) struct Wire(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

impl Wire {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | VARINT);
        self.varint(value);
        self
    }

    pub(crate) fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    pub(crate) fn message(self, field: u64, value: Wire) -> Self {
        self.bytes(field, &value.0)
    }

    pub(crate) fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | FIXED64);
        self.0.extend(value.to_bits().to_le_bytes());
        self
    }

    pub(crate) fn fixed32(mut self, field: u64, value: u32) -> Self {
        self.varint(field << 3 | FIXED32);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | LENGTH);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
