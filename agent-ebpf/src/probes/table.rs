//! The table of live sockets: a slot each, found by cookie. A slot that is reused is told by its cookies, which
//! the kernel never gives twice.

use core::intrinsics::{AtomicOrdering, atomic_xadd};
use core::ptr::write_volatile;

use firedoor_ebpf::{Identity, Slot, Stat};

use super::maps::{FREE, HIGH_WATER, INDEX, SLOTS, count};

const BPF_NOEXIST: u64 = 1;

/// Gives a socket a slot, unless it has one.
#[inline(always)]
pub(super) fn enter(sk: *const u8, identity: &Identity) {
    let cookie = identity.cookie;
    if cookie == 0 || INDEX.get_ptr(&cookie).is_some() {
        return;
    }
    let Some((number, slot)) = vacant() else {
        count(Stat::SlotsFull);
        return;
    };
    // SAFETY: a valid element. Nobody else writes to a slot that was just taken; readers check the cookies.
    unsafe {
        write_volatile(&raw mut (*slot).cookie, 0);
        write_volatile(&raw mut (*slot).sampled, 0);
        write_volatile(&raw mut (*slot).sk, sk as u64);
        write_volatile(&raw mut (*slot).identity, *identity);
        write_volatile(&raw mut (*slot).cookie, cookie);
    }
    // A seed and the hook may race for the same socket: the second one gives its slot back.
    if INDEX.insert(&cookie, &number, BPF_NOEXIST).is_err() {
        give_back(number, slot);
        return;
    }
    count(Stat::SlotsTaken);
}

/// Takes a socket out; whether it was in.
#[inline(always)]
pub(super) fn leave(cookie: u64) -> bool {
    let Some(number) = INDEX.get_ptr(&cookie) else { return false };
    // SAFETY: a valid element of a map whose elements outlive the program's run.
    let number = unsafe { *number };
    if INDEX.remove(&cookie).is_err() {
        return false; // another CPU did it
    }
    if let Some(slot) = SLOTS.get_ptr_mut(number) {
        give_back(number, slot);
    }
    count(Stat::SlotsReturned);
    true
}

/// A slot that was given back, or the first that never was used.
#[inline(always)]
fn vacant() -> Option<(u32, *mut Slot)> {
    if let Ok(Some(number)) = FREE.pop() {
        return Some((number, SLOTS.get_ptr_mut(number)?));
    }
    let high_water = HIGH_WATER.get_ptr_mut(0)?;
    // Not relaxed: for that LLVM picks the addition that returns nothing, and every socket would get slot 1.
    // SAFETY: a valid, aligned element, written atomically only. 64 bits never wrap around.
    let number = unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(high_water, 1) };
    let number = u32::try_from(number).ok()?;
    Some((number, SLOTS.get_ptr_mut(number)?))
}

#[inline(always)]
fn give_back(number: u32, slot: *mut Slot) {
    // SAFETY: a valid element; readers that look now find unequal cookies.
    unsafe {
        write_volatile(&raw mut (*slot).identity.cookie, 0);
        write_volatile(&raw mut (*slot).cookie, 0);
    }
    let _ = FREE.push(&number, 0);
}
