//! Results that are too long for one message, as objects of JetStream.

use std::time::Duration;

use async_nats::jetstream::object_store::{GetErrorKind, ObjectStore};
use bascule_model::error_chain;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::connection::{refused, within};
use super::jetstream::JetStream;
use super::streams;
use crate::{BusError, ResultObject};

/// The time for the parts of an object.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

impl JetStream {
    /// Stores an object. The bucket is created with the first one.
    pub(super) async fn put_object(&self, name: &str, content: &[u8]) -> Result<ResultObject, BusError> {
        const OPERATION: &str = "store a long result";
        let store = self.object_store().await?;
        let stored = timeout(TRANSFER_TIMEOUT, store.put(name, &mut &*content)).await;
        let stored = stored.map_err(|_| timed_out(OPERATION))?.map_err(|error| refused(OPERATION, &error))?;
        Ok(ResultObject { bucket: stored.bucket, name: stored.name, bytes: content.len() as u64 })
    }

    /// Reads an object of at most `limit` bytes. The client compares its digest.
    pub(super) async fn get_object(&self, object: &ResultObject, limit: usize) -> Result<Vec<u8>, BusError> {
        const OPERATION: &str = "read a long result";
        let refuse = |reason: String| BusError::Refused { operation: OPERATION, reason };
        // Whoever wrote the message must not choose what is read with the rights of this connection.
        if object.bucket != streams::RESULTS {
            return Err(refuse(format!("`{}` is not the bucket of results", object.bucket)));
        }
        let store = self.object_store().await?;
        let found = match within(OPERATION, store.get(&object.name)).await? {
            Ok(found) => found,
            Err(error) if error.kind() == GetErrorKind::NotFound => {
                return Err(refuse(format!("there is no object `{}`; it may have aged out", object.name)));
            }
            Err(error) => return Err(refused(OPERATION, &error)),
        };
        let bytes = found.info().size;
        if bytes > limit {
            return Err(BusError::TooLarge { bytes, limit });
        }
        let mut content = Vec::with_capacity(bytes);
        // One byte more than announced shows that the object is not what it says.
        let mut reader = found.take(bytes as u64 + 1);
        let read = timeout(TRANSFER_TIMEOUT, reader.read_to_end(&mut content)).await;
        read.map_err(|_| timed_out(OPERATION))?.map_err(|error| refuse(error_chain(&error)))?;
        match content.len() == bytes {
            true => Ok(content),
            false => Err(refuse(format!("`{}` has {} bytes, not {bytes}", object.name, content.len()))),
        }
    }

    async fn object_store(&self) -> Result<&ObjectStore, BusError> {
        const OPERATION: &str = "open the object store";
        let open = || async {
            self.ensure_stream(streams::results()).await?;
            let store = within(OPERATION, self.context().get_object_store(streams::RESULTS)).await?;
            store.map_err(|error| refused(OPERATION, &error))
        };
        self.objects.get_or_try_init(open).await
    }
}

fn timed_out(operation: &'static str) -> BusError {
    BusError::Timeout { operation, seconds: TRANSFER_TIMEOUT.as_secs() }
}
