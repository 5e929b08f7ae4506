//! One step of training, as the network sees it: a ring all-reduce, and a few bytes to everybody else. Enters: the
//! mesh; leaves: a sum whose value is known beforehand, and checked.

use std::thread;

use anyhow::{Context, Result, anyhow};

use super::meet::Mesh;
use super::truth::Journal;

/// What goes to those that are no neighbours in the ring.
const GREETING: [u8; 64] = [0x5a; 64];
const NUMBER: usize = 4;

/// All-reduces `bytes` bytes; says whether anybody wants to stop.
pub(super) fn step(mesh: &Mesh, step: u64, bytes: usize, stop: bool, journal: &Journal) -> Result<bool> {
    // Small whole numbers, so that their sum is exact.
    let turn = (step % 1_000) as f32;
    let own = mesh.rank as f32 + turn;
    let mut buffer = vec![own; (bytes / NUMBER).max(mesh.world)];
    if let Some(first) = buffer.first_mut() {
        *first = if stop { 1.0 } else { 0.0 };
    }
    reduce(mesh, &mut buffer)?;
    greet(mesh)?;
    let (world, last) = (mesh.world as f32, (mesh.world - 1) as f32);
    let sum = world * last / 2.0 + world * turn;
    let (wish, numbers) = buffer.split_first().context("an empty buffer")?;
    let mut truth = journal.truth();
    if numbers.iter().all(|number| (number - sum).abs() < f32::EPSILON) {
        truth.steps += 1;
    } else {
        truth.wrong_sums += 1;
    }
    Ok(*wish > 0.0)
}

/// Reduce-scatter, then all-gather: each in world - 1 hops of one chunk.
fn reduce(mesh: &Mesh, buffer: &mut [f32]) -> Result<()> {
    let (world, length) = (mesh.world, buffer.len());
    let bounds = |number: usize| {
        let number = number % world;
        number * length / world..(number + 1) * length / world
    };
    for hop in 0..2 * (world - 1) {
        let gathering = hop >= world - 1;
        let turn = hop % (world - 1);
        let first = mesh.rank + usize::from(gathering) + 2 * world;
        let (out, into) = (bounds(first - turn), bounds(first - turn - 1));
        let sent = to_bytes(buffer.get(out).context("no such chunk")?);
        let target = buffer.get_mut(into).context("no such chunk")?;
        let received = exchange(mesh, &sent, target.len() * NUMBER)?;
        for (number, bytes) in target.iter_mut().zip(received.chunks_exact(NUMBER)) {
            let value = f32::from_le_bytes(bytes.try_into().unwrap_or_default());
            *number = if gathering { value } else { *number + value };
        }
    }
    Ok(())
}

/// Sends to the next in the ring while receiving from the one before: all send at once, and would wait for each other.
fn exchange(mesh: &Mesh, sent: &[u8], expected: usize) -> Result<Vec<u8>> {
    let next = mesh.peer((mesh.rank + 1) % mesh.world)?;
    let before = mesh.peer((mesh.rank + mesh.world - 1) % mesh.world)?;
    let mut received = vec![0; expected];
    thread::scope(|scope| {
        let sending = scope.spawn(|| next.send(sent));
        before.receive(&mut received)?;
        sending.join().map_err(|_| anyhow!("the sender broke"))?
    })?;
    Ok(received)
}

fn greet(mesh: &Mesh) -> Result<()> {
    let neighbours = [(mesh.rank + 1) % mesh.world, (mesh.rank + mesh.world - 1) % mesh.world];
    let others = || mesh.peers().filter(|(rank, _)| !neighbours.contains(rank));
    for (_, stream) in others() {
        stream.send(&GREETING)?;
    }
    for (_, stream) in others() {
        let mut greeting = GREETING;
        stream.receive(&mut greeting)?;
    }
    Ok(())
}

fn to_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
