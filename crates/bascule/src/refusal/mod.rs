//! Explains what confinement refused to a server, and names the setting that would allow it.
//!
//! `symptom` finds signs of a refusal in texts, `hint` turns one into a sentence, `remedy` finds the path to grant, and
//! `proposal` writes the entry of the configuration. `trace` judges the refusals of a traced server.

mod hint;
mod proposal;
mod remedy;
mod symptom;
mod trace;

pub(crate) use hint::{FileLookup, Hints};
pub(crate) use symptom::{Symptom, find_named_paths, find_symptom, gives_no_reason, is_killed_by_filter};
pub(crate) use trace::{Proposal, RefusedBy, TraceJudge, TracePhase, TracedRefusal};
