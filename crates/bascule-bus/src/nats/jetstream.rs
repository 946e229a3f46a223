//! Requests to JetStream that survive a lost connection: store a message, read one, ask the API.

use std::sync::Arc;

use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{HeaderMap, HeaderValue, Message, Request, RequestErrorKind};
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::connection::{NatsConnection, OPERATION_TIMEOUT, refused};
use crate::BusError;

/// JetStream behind a connection. Clones share it.
#[derive(Clone)]
pub(super) struct JetStream {
    connection: NatsConnection,
    context: Context,
    /// The object store, once it is open.
    pub(super) objects: Arc<OnceCell<async_nats::jetstream::object_store::ObjectStore>>,
}

/// A message that a stream has taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredMessage {
    pub(super) sequence: u64,
    /// The stream has had a message with this id.
    pub(super) is_duplicate: bool,
    /// The message was sent more than once, because the connection was lost.
    pub(super) was_repeated: bool,
}

/// The last message of a subject.
pub(super) struct LastMessage {
    pub(super) sequence: u64,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

/// The reason why a stream has not taken a message.
#[derive(Debug)]
pub(super) enum PublishError {
    /// No stream has this subject.
    NoStream,
    /// The last message of the subject is not the expected one.
    WrongSequence,
    Bus(BusError),
}

impl JetStream {
    pub(super) fn new(connection: NatsConnection) -> Self {
        let context = ContextBuilder::new().timeout(OPERATION_TIMEOUT).build(connection.client().clone());
        Self { connection, context, objects: Arc::default() }
    }

    pub(super) fn connection(&self) -> &NatsConnection {
        &self.connection
    }

    /// The client's own interface, for operations that need not be fast.
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Stores a message and waits until the stream has it.
    pub(super) async fn store(
        &self,
        operation: &'static str,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<StoredMessage, PublishError> {
        let (response, was_repeated) = self.request(operation, subject, headers, payload).await?;
        let response = serde_json::from_slice(&response.payload);
        let response: PublishResponse =
            response.map_err(|error| PublishError::Bus(refused(operation, &error)))?;
        match response.error {
            Some(error) => Err(error.into_publish_error(operation)),
            None => Ok(StoredMessage {
                sequence: response.sequence,
                is_duplicate: response.is_duplicate,
                was_repeated,
            }),
        }
    }

    /// Stores a message if `expected` is the sequence of the last one with its subject; 0: there is none.
    pub(super) async fn compare_and_store(
        &self,
        operation: &'static str,
        subject: &str,
        expected: u64,
        mut headers: HeaderMap,
        payload: Bytes,
    ) -> Result<StoredMessage, PublishError> {
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(expected));
        self.store(operation, subject, headers, payload).await
    }

    /// Reads the last message of a subject.
    pub(super) async fn read_last(
        &self,
        operation: &'static str,
        stream: &str,
        subject: &str,
    ) -> Result<Option<LastMessage>, BusError> {
        let request = format!("$JS.API.DIRECT.GET.{stream}.{subject}");
        let response = self.request(operation, &request, HeaderMap::new(), Bytes::new()).await;
        let (message, _) = response.map_err(|error| error.into_bus_error(operation))?;
        let headers = message.headers.unwrap_or_default();
        let sequence = headers.get("Nats-Sequence");
        match (message.status, sequence.and_then(|sequence| sequence.as_str().parse().ok())) {
            (None, Some(sequence)) => Ok(Some(LastMessage { sequence, headers, payload: message.payload })),
            (Some(status), _) if status.as_u16() == 404 => Ok(None),
            _ => {
                let reason = message.description.unwrap_or_else(|| "the response has no sequence".into());
                Err(BusError::Refused { operation, reason })
            }
        }
    }

    /// Sends a request and waits for its response. Sends it again if the connection was lost meanwhile, which the second
    /// value tells.
    async fn request(
        &self,
        operation: &'static str,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(Message, bool), PublishError> {
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        let mut was_repeated = false;
        loop {
            let state = self.connection.connected(operation).await.map_err(PublishError::Bus)?;
            let mut request = Request::new().payload(payload.clone()).timeout(None);
            if !headers.is_empty() {
                request = request.headers(headers.clone());
            }
            let mut link = self.connection.watch();
            tokio::select! {
                response = self.connection.client().send_request(subject.to_owned(), request) => {
                    return match response {
                        Ok(message) => Ok((message, was_repeated)),
                        Err(error) if error.kind() == RequestErrorKind::NoResponders => Err(PublishError::NoStream),
                        Err(error) => Err(PublishError::Bus(refused(operation, &error))),
                    };
                }
                _ = link.wait_for(|now| now.losses != state.losses || now.is_closed) => was_repeated = true,
                () = tokio::time::sleep_until(deadline) => {
                    let seconds = OPERATION_TIMEOUT.as_secs();
                    return Err(PublishError::Bus(BusError::Timeout { operation, seconds }));
                }
            }
        }
    }
}

impl PublishError {
    pub(super) fn into_bus_error(self, operation: &'static str) -> BusError {
        match self {
            Self::Bus(error) => error,
            Self::NoStream => BusError::Refused {
                operation,
                reason: "no stream of JetStream takes it; is JetStream enabled (`nats-server -js`)?".into(),
            },
            Self::WrongSequence => {
                BusError::Refused { operation, reason: "another replica was first".into() }
            }
        }
    }
}

#[derive(Deserialize)]
struct PublishResponse {
    /// 0 beside an error.
    #[serde(default, rename = "seq")]
    sequence: u64,
    #[serde(default, rename = "duplicate")]
    is_duplicate: bool,
    error: Option<ApiError>,
}

#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl ApiError {
    /// The stream's limits, and the server's storage.
    const FULL: [u64; 4] = [10077, 10047, 10023, 10122];
    const WRONG_SEQUENCE: [u64; 2] = [10071, 10164];

    fn into_publish_error(self, operation: &'static str) -> PublishError {
        match self.err_code {
            code if Self::WRONG_SEQUENCE.contains(&code) => PublishError::WrongSequence,
            code if Self::FULL.contains(&code) => PublishError::Bus(BusError::Full),
            _ => PublishError::Bus(BusError::Refused { operation, reason: self.description }),
        }
    }
}
