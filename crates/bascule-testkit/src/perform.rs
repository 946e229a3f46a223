//! Carries out the steps of an answer. Where the words go is the caller's business.

use std::io;
use std::thread;

use serde_json::Value;

use crate::asked::Asked;
use crate::line::Line;
use crate::steps::{Ending, Step};

/// Carries out the steps one after another and tells how they ended.
pub(crate) fn perform(
    steps: &[Step],
    asked: &Asked,
    say: &mut dyn FnMut(&Line) -> io::Result<()>,
) -> io::Result<Ending> {
    let mut heard = Vec::new();
    for step in steps {
        match step {
            Step::Say(line) => say(line)?,
            Step::Wait(time) => thread::sleep(*time),
            Step::Ask(request) => heard.push(asked.ask(request, say)?),
            Step::Recount(id) => say(&recount(id, &heard))?,
            Step::Break { .. } => {
                panic!("only an event stream of Streamable HTTP can be left and taken up again")
            }
            Step::End(ending) => return Ok(*ending),
        }
    }
    Ok(Ending::Done)
}

fn recount(id: &str, heard: &[String]) -> Line {
    let answers = heard.join(",");
    let text = Value::from(answers.as_str());
    Line::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{{"answers":[{answers}]}},"isError":false}}}}"#
    ))
}
