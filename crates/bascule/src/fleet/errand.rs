//! A request on its way to a server, which may have to be sent more than once.

use std::sync::Arc;

use bascule_client::OnProgress;
use serde_json::value::RawValue;

/// Hears reports of progress, as they came.
pub(crate) type Hear = Arc<dyn Fn(&RawValue) + Send + Sync>;

/// What is to be asked, and who hears how it goes.
pub(crate) struct Errand<'a> {
    pub(crate) method: &'a str,
    /// The tool that is called, if it is a call.
    pub(crate) tool: Option<&'a str>,
    /// Spells the parameters, given the id of the request, which is its progress token too.
    pub(crate) params: &'a (dyn Fn(u64) -> Option<String> + Send + Sync),
    pub(crate) hear: Option<Hear>,
}

impl Errand<'_> {
    pub(crate) fn on_progress(&self) -> Option<OnProgress> {
        let hear = self.hear.clone()?;
        Some(Box::new(move |params| hear(params)))
    }

    /// What it is called in errors.
    pub(crate) fn name(&self) -> &str {
        self.tool.unwrap_or(self.method)
    }
}
