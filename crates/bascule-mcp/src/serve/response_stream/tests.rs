//! Order, limits and ends of response streams.

use super::*;
use std::time::Duration;
use tokio::time::timeout;

const MOMENT: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_secs(10);

async fn received(stream: &ResponseStream) -> Vec<String> {
    let mut frames = Vec::new();
    while let Ok(Some(frame)) = timeout(MOMENT, stream.next()).await {
        let mark = if frame.is_response { "." } else { "" };
        frames.push(format!("{}{mark}", String::from_utf8(frame.bytes).unwrap()));
    }
    frames
}

fn push(stream: &ResponseStream, text: &str) -> bool {
    stream.push(text.as_bytes().to_vec())
}

#[tokio::test(start_paused = true)]
async fn delivers_frames_in_order_and_nothing_after_the_response() {
    let stream = ResponseStream::new(100);
    assert!(push(&stream, "a") && push(&stream, "b") && !stream.is_closed());
    stream.finish(b"c".to_vec());
    assert!(!push(&stream, "d") && stream.is_closed());
    stream.finish(b"e".to_vec());
    assert_eq!(received(&stream).await, ["a", "b", "c."]);
    assert_eq!(stream.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn closes_when_a_frame_does_not_fit() {
    let stream = ResponseStream::new(3);
    assert!(push(&stream, "long enough"), "one frame always fits");
    assert_eq!(received(&stream).await, ["long enough"]);
    assert!(push(&stream, "ab") && push(&stream, "c") && !push(&stream, "d"));
    assert!(stream.receiver().has_overflowed());
    assert!(!push(&stream, "") && received(&stream).await.is_empty());
    let stream = ResponseStream::new(3);
    assert!(push(&stream, "abc"));
    stream.finish(b"the response always fits".to_vec());
    assert_eq!(received(&stream).await, ["abc", "the response always fits."]);
}

#[tokio::test(start_paused = true)]
async fn closed_returns_when_the_receiver_is_dropped() {
    let stream = ResponseStream::new(100);
    let receiver = stream.receiver();
    push(&stream, "unread");
    let waiting = tokio::spawn({
        let stream = stream.clone();
        async move { stream.closed().await }
    });
    assert!(timeout(MOMENT, stream.closed()).await.is_err());
    drop(receiver);
    timeout(DEADLINE, waiting).await.unwrap().unwrap();
    assert!(stream.is_closed() && !push(&stream, "more"));
}

#[tokio::test(start_paused = true)]
async fn receiver_sees_the_end_when_all_senders_are_dropped() {
    let stream = ResponseStream::new(100);
    let receiver = stream.receiver();
    let other = stream.clone();
    push(&other, "a");
    drop(stream);
    assert!(timeout(MOMENT, receiver.next()).await.unwrap().is_some());
    assert!(timeout(MOMENT, receiver.next()).await.is_err());
    drop(other);
    assert_eq!(timeout(DEADLINE, receiver.next()).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn branches_forward_in_the_order_of_pushes() {
    let stream = ResponseStream::new(1000);
    let (one, two, late) = (stream.branch("1"), stream.branch("2"), ResponseStream::new(1000));
    push(&late, "early");
    push(&one, "a");
    late.forward_to(&stream);
    push(&two, "b");
    push(&late, "c");
    one.finish(b"d".to_vec());
    assert!(!push(&one, "e") && one.is_closed() && !two.is_closed());
    assert!(timeout(MOMENT, stream.wait_for_branches()).await.is_err());
    two.close();
    timeout(DEADLINE, stream.wait_for_branches()).await.unwrap();
    drop(stream.branch("3"));
    let error = r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32000,"message":"the request ended without a response"}}."#;
    assert_eq!(received(&stream).await, ["a", "early", "b", "c", "d.", error]);
}

// req: GW-03
#[tokio::test(start_paused = true)]
async fn limit_applies_to_messages_but_not_to_responses() {
    let stream = ResponseStream::new(3);
    let branches: Vec<ResponseStream> = (0..4).map(|id| stream.branch(&id.to_string())).collect();
    assert!(push(&branches[3], "ab"));
    branches[..3].iter().for_each(|branch| branch.finish(b"long".to_vec()));
    assert!(push(&branches[3], "c") && !stream.is_closed());
    assert!(timeout(MOMENT, stream.wait_for_room()).await.is_err());
    assert_eq!(received(&stream).await, ["ab", "long.", "long.", "long.", "c"]);
    timeout(DEADLINE, stream.wait_for_room()).await.unwrap();
    assert!(push(&branches[3], "abc") && !push(&branches[3], "d") && stream.has_overflowed());
}

#[tokio::test(start_paused = true)]
async fn wait_for_room_returns_after_a_read_and_after_the_receiver_is_dropped() {
    for by_reading in [true, false] {
        let stream = ResponseStream::new(3);
        stream.branch("1").finish(b"long".to_vec());
        let receiver = stream.receiver();
        let waiting = tokio::spawn({
            let stream = stream.clone();
            async move { stream.wait_for_room().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        match by_reading {
            true => drop(receiver.try_next().unwrap()),
            false => drop(receiver),
        }
        timeout(DEADLINE, waiting).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn closing_the_target_closes_its_branches() {
    let stream = ResponseStream::new(1000);
    let (branch, late) = (stream.branch("1"), ResponseStream::new(1000));
    let waiting = tokio::spawn({
        let (branch, late) = (branch.clone(), late.clone());
        async move { tokio::join!(branch.closed(), late.closed()) }
    });
    tokio::task::yield_now().await;
    late.forward_to(&stream);
    tokio::task::yield_now().await;
    stream.close();
    timeout(DEADLINE, waiting).await.unwrap().unwrap();
    assert!(branch.is_closed() && late.is_closed() && !push(&branch, "x"));
    assert!(!branch.has_overflowed(), "a closed target is not a full one");
}
