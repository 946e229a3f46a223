//! Ports for servers that a test stops and starts again.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that the kernel gives to clients, so no connection takes the port of a server that is stopped.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// Returns a loopback port that is free now, and that no earlier call in this process has returned.
///
/// # Panics
/// If all are taken.
pub(crate) fn lasting_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Test processes that run side by side begin at different ports.
    let first = std::process::id().wrapping_mul(127);
    let candidates = std::iter::repeat_with(|| {
        let number = first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
        u16::try_from(FIRST + number).expect("the range ends below 65536")
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    candidates.take(COUNT as usize).find(is_free).expect("a port is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_not_those_of_clients() {
        let ports: std::collections::BTreeSet<u16> = (0..100).map(|_| lasting_port()).collect();
        assert_eq!(ports.len(), 100);
        assert!(ports.iter().all(|port| *port < 32_768));
    }
}
