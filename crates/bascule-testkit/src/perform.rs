//! Executes the steps of a response. The caller provides the sink for messages.

use std::io;
use std::thread;

use serde_json::Value;

use crate::client_requests::ClientRequests;
use crate::padded_text::PaddedText;
use crate::steps::{Completion, Step};

/// Executes the steps in order.
pub(crate) fn perform(
    steps: &[Step],
    requests: &ClientRequests,
    send: &mut dyn FnMut(&PaddedText) -> io::Result<()>,
) -> io::Result<Completion> {
    let mut answers = Vec::new();
    for step in steps {
        match step {
            Step::Send(text) => send(text)?,
            Step::Wait(time) => thread::sleep(*time),
            Step::Request(request) => answers.push(requests.request(request, send)?),
            Step::RespondWithAnswers(id) => send(&response_with_answers(id, &answers))?,
            Step::Break { .. } => {
                panic!("only an event stream of Streamable HTTP can be suspended")
            }
            Step::End(completion) => return Ok(*completion),
        }
    }
    Ok(Completion::Done)
}

fn response_with_answers(id: &str, answers: &[String]) -> PaddedText {
    let answers = answers.join(",");
    let text = Value::from(answers.as_str());
    PaddedText::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{{"answers":[{answers}]}},"isError":false}}}}"#
    ))
}
