//! Opens, shares and closes the sessions towards servers.

use std::sync::{Arc, Mutex, MutexGuard};

use bascule_mcp::Endpoint;
use bascule_model::{BridgeResult, ServerName};
use foldhash::HashMap;

use super::Gateway;
use super::upstream_session::UpstreamSession;
use crate::client::{ClientContext, SharingKey};
use crate::config::{Isolation, ServerSettings, SessionSharing};
use crate::fleet::server::Server;

type Table = HashMap<(ServerName, SharingKey), Arc<UpstreamSession>>;

/// All upstream sessions, by server and sharing key.
#[derive(Default)]
pub(super) struct Upstreams(Mutex<Table>);

impl Upstreams {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}

/// Returns true if each client has a session of its own. A process for one call cannot ask clients anything, so clients
/// of all capabilities share it.
pub(super) fn has_session_per_client(settings: &ServerSettings) -> bool {
    settings.session == SessionSharing::PerClient && settings.isolation == Isolation::Shared
}

/// Returns the key under which a client shares a server.
pub(super) fn sharing_key(settings: &ServerSettings, client: &ClientContext) -> SharingKey {
    match settings.isolation {
        Isolation::PerCall => SharingKey::without_capabilities(),
        Isolation::Shared if has_session_per_client(settings) => SharingKey::Client(client.serial),
        Isolation::Shared => client.sharing_key(),
    }
}

impl Gateway {
    /// Returns the upstream session through which a client uses a server, and attaches the client to it.
    pub(super) fn upstream(
        &self,
        client: &Arc<ClientContext>,
        name: &str,
    ) -> BridgeResult<Arc<UpstreamSession>> {
        let snapshot = self.bridge.fleet.snapshot.load();
        let base = snapshot.servers.get(name).ok_or_else(|| {
            crate::normalise::missing(crate::normalise::no_server(&snapshot.settings, name))
        })?;
        let key = (base.settings.name.clone(), sharing_key(&base.settings, client));
        let is_stale = match self.upstreams.table().get(&key) {
            Some(upstream) if upstream.serves(base) => {
                upstream.attach(client);
                return Ok(upstream.clone());
            }
            known => known.is_some(),
        };
        if is_stale {
            self.renew_upstreams();
        }
        let (upstream, is_new) = self.find_or_open(&mut self.upstreams.table(), client, base)?;
        if is_new {
            upstream.restore_subscriptions_if_up();
        }
        Ok(upstream)
    }

    /// Returns the upstream session, and true if it was opened now.
    fn find_or_open(
        &self,
        table: &mut Table,
        client: &Arc<ClientContext>,
        base: &Arc<Server>,
    ) -> BridgeResult<(Arc<UpstreamSession>, bool)> {
        let key = sharing_key(&base.settings, client);
        let known = table.get(&(base.settings.name.clone(), key.clone())).cloned();
        let is_new = known.is_none();
        let upstream = match known {
            Some(upstream) => upstream,
            None if client.is_closed() => {
                return Err(crate::normalise::unavailable_error(
                    &base.settings.name,
                    "the client's session has ended",
                ));
            }
            None => {
                check_room(table, base, &key)?;
                let upstream =
                    UpstreamSession::open(base, &key, &client.capabilities, &self.bridge.fleet, &self.tasks);
                table.insert((base.settings.name.clone(), key), upstream.clone());
                upstream
            }
        };
        upstream.attach(client);
        Ok((upstream, is_new))
    }

    /// Returns the server that works for a client: the bridge's own, or one for the client's sharing key.
    pub(super) fn server_for(
        &self,
        client: &Arc<ClientContext>,
        base: &Arc<Server>,
    ) -> BridgeResult<Arc<Server>> {
        match sharing_key(&base.settings, client).has_no_capabilities() {
            true => Ok(base.clone()),
            false => Ok(self.upstream(client, base.settings.name.as_str())?.server.clone()),
        }
    }

    /// Detaches a client from its upstream sessions, and returns them.
    pub(super) fn detach(&self, client: &ClientContext) -> Vec<Arc<UpstreamSession>> {
        self.upstreams.table().values().filter(|upstream| upstream.detach(client)).cloned().collect()
    }

    /// Closes upstream sessions without clients.
    pub(super) fn close_unused_upstreams(&self) {
        let unused: Vec<_> = self
            .upstreams
            .table()
            .extract_if(|_, upstream| upstream.is_unused())
            .map(|(_, one)| one)
            .collect();
        for upstream in unused {
            self.tasks.tracker.spawn(async move { upstream.close().await });
        }
    }

    /// Moves clients whose servers were reconfigured to new upstream sessions.
    pub(super) fn renew_upstreams(&self) {
        let (snapshot, mut table) = (self.bridge.fleet.snapshot.load_full(), self.upstreams.table());
        let is_stale = |(name, _): &(ServerName, SharingKey), upstream: &mut Arc<UpstreamSession>| {
            snapshot.servers.get(name).is_none_or(|base| !upstream.serves(base))
        };
        let stale: Vec<Arc<UpstreamSession>> = table.extract_if(is_stale).map(|(_, one)| one).collect();
        let mut opened = Vec::new();
        for upstream in &stale {
            let Some(base) = snapshot.servers.get(&upstream.server.settings.name) else { continue };
            for client in upstream.clients() {
                opened
                    .extend(self.find_or_open(&mut table, &client, base).ok().filter(|(_, is_new)| *is_new));
            }
        }
        drop(table);
        opened.iter().for_each(|(upstream, _)| upstream.restore_subscriptions_if_up());
        for upstream in stale {
            let grace = self.grace;
            self.tasks.tracker.spawn(async move { upstream.retire(grace).await });
        }
        let clients = self.sessions.clients();
        clients.iter().filter(|client| client.endpoint == Endpoint::All).for_each(|one| self.attach_all(one));
    }

    /// Attaches a client to every server, so that it receives their changes.
    pub(super) fn attach_all(&self, client: &Arc<ClientContext>) {
        let snapshot = self.bridge.fleet.snapshot.load_full();
        snapshot.in_order().for_each(|base| drop(self.upstream(client, base.settings.name.as_str())));
    }
}

/// Enforces `maxSessions`.
fn check_room(table: &Table, base: &Server, key: &SharingKey) -> BridgeResult<()> {
    let (name, max) = (&base.settings.name, base.settings.max_sessions);
    let own = table.keys().filter(|(other, key)| other == name && !key.has_no_capabilities()).count();
    match key.has_no_capabilities() || own < max {
        true => Ok(()),
        false => {
            let reason = format!("all {max} sessions for clients are in use (`maxSessions`)");
            Err(crate::normalise::unavailable_error(name, reason))
        }
    }
}
