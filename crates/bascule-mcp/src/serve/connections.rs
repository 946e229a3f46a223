//! The open connections of an HTTP server, and which of them is closed when there is no room for a new one.
//!
//! A connection is *silent* until its first request has passed all access checks. Silent ones go first: a peer without a token
//! must not keep clients out. Then an idle one goes, and then one that holds only a session's event stream: their clients
//! connect again. A connection with a request in flight stays. Each time the peer with the most such connections gives up its
//! oldest.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_util::sync::CancellationToken;

use super::peer_id::{PeerAddress, PeerId};
use super::slow_response_timer::SlowResponseTimer;
use super::timed_socket::Activity;

#[derive(Default)]
pub(super) struct Connections {
    /// The silent connections of each address, oldest first. Some have ended, or are silent no more.
    silent: HashMap<PeerAddress, VecDeque<Weak<ConnectionState>>>,
    /// All connections, oldest first. Some have ended.
    all: VecDeque<Weak<ConnectionState>>,
}

pub(super) struct ConnectionState {
    pub(super) address: PeerAddress,
    pub(super) activity: Arc<Activity>,
    /// The sender of the last accepted request; `None` before the first one.
    peer: Mutex<Option<PeerId>>,
    has_event_stream: AtomicBool,
    pub(super) slow_response_timer: SlowResponseTimer,
    /// Closes the connection.
    pub(super) evicted: CancellationToken,
}

impl Connections {
    /// Adds a new connection, which drops its state when it ends.
    pub(super) fn add(&mut self, address: PeerAddress) -> Arc<ConnectionState> {
        let state = Arc::new(ConnectionState {
            address,
            activity: Arc::default(),
            peer: Mutex::default(),
            has_event_stream: AtomicBool::new(false),
            slow_response_timer: SlowResponseTimer::default(),
            evicted: CancellationToken::new(),
        });
        self.remove_outdated(address);
        self.silent.entry(address).or_default().push_back(Arc::downgrade(&state));
        self.all.push_back(Arc::downgrade(&state));
        state
    }

    /// Closes one connection. Returns false if all of them have requests in flight.
    pub(super) fn make_room(&mut self) -> bool {
        let evicted = self
            .take_silent()
            .or_else(|| self.oldest_of_busiest_peer(ConnectionState::is_idle))
            .or_else(|| self.oldest_of_busiest_peer(ConnectionState::holds_only_event_stream));
        evicted.inspect(|state| state.evicted.cancel()).is_some()
    }

    /// Takes the oldest silent connection of the address that has most of them.
    fn take_silent(&mut self) -> Option<Arc<ConnectionState>> {
        while let Some(address) = self.silent.iter().max_by_key(|(_, queue)| queue.len()).map(|(key, _)| *key)
        {
            let queue = self.silent.get_mut(&address)?;
            match queue.pop_front().map(|state| state.upgrade()) {
                None => drop(self.silent.remove(&address)),
                Some(Some(state)) if state.is_silent() => return Some(state),
                Some(_) => {}
            }
        }
        None
    }

    /// Returns the oldest connection that satisfies the predicate, of the peer that has most of them. Called only while no
    /// connection is silent, so that a flood of silent ones does not repeat the search.
    fn oldest_of_busiest_peer(
        &mut self,
        predicate: fn(&ConnectionState) -> bool,
    ) -> Option<Arc<ConnectionState>> {
        self.all.retain(|state| state.strong_count() > 0);
        let found: Vec<_> =
            self.all.iter().filter_map(Weak::upgrade).filter(|state| predicate(state)).collect();
        let mut counts = HashMap::new();
        found.iter().for_each(|state| *counts.entry(state.peer()).or_insert(0) += 1);
        let most = counts.values().copied().max()?;
        found.into_iter().find(|state| counts[&state.peer()] == most)
    }

    fn remove_outdated(&mut self, address: PeerAddress) {
        let is_outdated =
            |state: &Weak<ConnectionState>| state.upgrade().is_none_or(|state| !state.is_silent());
        if let Some(queue) = self.silent.get_mut(&address) {
            remove_from(queue, is_outdated);
        }
        // Some addresses never come again.
        if self.silent.len().is_power_of_two() {
            self.silent.retain(|_, queue| {
                remove_from(queue, is_outdated);
                !queue.is_empty()
            });
        }
        remove_from(&mut self.all, |state| state.strong_count() == 0);
    }
}

/// Removes outdated entries: those at the front, and all of them at times. An old connection at the front must not keep
/// the entries of all later ones.
fn remove_from(
    queue: &mut VecDeque<Weak<ConnectionState>>,
    is_outdated: impl Fn(&Weak<ConnectionState>) -> bool,
) {
    while queue.front().is_some_and(&is_outdated) {
        queue.pop_front();
    }
    if queue.len().is_power_of_two() {
        queue.retain(|state| !is_outdated(state));
    }
}

impl ConnectionState {
    /// To be called when a request has passed all access checks.
    pub(super) fn record_accepted_request(&self, peer: PeerId) {
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = Some(peer);
        self.has_event_stream.store(false, Ordering::Relaxed);
    }

    /// To be called when the accepted request opens the event stream of a session.
    pub(super) fn record_event_stream(&self) {
        self.has_event_stream.store(true, Ordering::Relaxed);
    }

    fn peer(&self) -> Option<PeerId> {
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_silent(&self) -> bool {
        self.peer().is_none()
    }

    fn is_idle(&self) -> bool {
        !self.is_silent() && !self.evicted.is_cancelled() && !self.activity.has_requests()
    }

    fn holds_only_event_stream(&self) -> bool {
        self.has_event_stream.load(Ordering::Relaxed) && !self.evicted.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::peer_id::peer_address;
    use super::*;

    fn address(text: &str) -> PeerAddress {
        peer_address(text.parse().unwrap())
    }

    /// Adds connections from these addresses, accepted ones with the number of a token. Expects the first one to make room.
    fn check(added: &[(&str, Option<usize>)], expected: Option<usize>) {
        let mut connections = Connections::default();
        let add = |(from, token): &(&str, Option<usize>)| {
            let state = connections.add(address(from));
            if token.is_some() {
                state.record_accepted_request(PeerId { token: *token, address: state.address });
            }
            state
        };
        let states: Vec<_> = added.iter().map(add).collect();
        assert_eq!(connections.make_room(), expected.is_some());
        assert_eq!(states.iter().position(|state| state.evicted.is_cancelled()), expected);
    }

    // req: GW-07
    #[test]
    fn peer_with_most_connections_gives_way() {
        let [one, other] = [("10.0.0.1", None), ("10.0.0.2", None)];
        check(&[], None);
        check(&[one, other, other], Some(1));
        let [first, second] = [("10.0.0.1", Some(0)), ("10.0.0.1", Some(1))];
        check(&[first, second, second], Some(1));
        check(&[first, first, first, other], Some(3));
    }

    // req: GW-07, BR-12
    #[test]
    fn connections_that_have_ended_take_no_room() {
        let mut connections = Connections::default();
        let _first = connections.add(address("10.0.0.1"));
        for n in 0..10_000_u32 {
            drop(connections.add(address("10.0.0.1")));
            drop(connections.add(Some(IpAddr::from(n.to_be_bytes()))));
        }
        let silent = connections.silent.values().map(VecDeque::len).sum::<usize>();
        assert!(silent < 10 && connections.all.len() < 10, "{silent} {}", connections.all.len());
    }

    // req: GW-07
    #[test]
    fn all_addresses_of_a_network_are_one_peer() {
        let [v4, mapped, v6, near] =
            ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "2001:db8::2"].map(|address| (address, None));
        check(&[v6, v4, mapped], Some(1));
        check(&[v4, v6, near], Some(1));
    }
}
