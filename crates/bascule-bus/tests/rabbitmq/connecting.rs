//! Admission to a broker, and what it says when it refuses.

use std::net::TcpListener;

use bascule_bus::{Bus, BusCredentials, BusError, ClientCertificate};
use bascule_model::Secret;
use bascule_testkit::{RabbitMqServer, RabbitMqSetting, TestCertificates};

use crate::support::{message, next_message, options, subscribe, topic, vhost};

async fn failure(options: &bascule_bus::BusOptions) -> String {
    match Bus::connect(options).await {
        Ok(_) => panic!("it connects"),
        Err(error @ BusError::Connect { .. }) => error.to_string(),
        Err(error) => panic!("another error: {error}"),
    }
}

// req: BU-01
#[tokio::test]
async fn wrong_password_is_named_without_the_password() {
    let mut options = options(&vhost());
    let password = Secret::new("hunter2".to_owned());
    options.credentials = BusCredentials::Password { user: "guest".into(), password };
    let error = failure(&options).await;
    assert!(error.contains("ACCESS_REFUSED - Login was refused"), "{error}");
    assert!(!error.contains("hunter2") && !error.contains("guest:"), "{error}");
}

// req: BU-01
#[tokio::test]
async fn unknown_virtual_host_is_named() {
    let url = format!("{}/nowhere", RabbitMqServer::shared().url());
    let error = failure(&options(&url)).await;
    assert!(error.contains("vhost nowhere not found"), "{error}");
}

// req: BU-01
#[tokio::test]
async fn absent_broker_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = failure(&options(&format!("amqp://user:secret@127.0.0.1:{port}"))).await;
    assert!(
        error.starts_with(&format!("could not connect to the bus at `amqp://127.0.0.1:{port}`: ")),
        "{error}"
    );
    assert!(error.contains("onnection refused") && !error.contains("secret"), "{error}");
}

// req: BU-01
#[tokio::test]
async fn silent_peer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("amqp://127.0.0.1:{}", listener.local_addr().unwrap().port());
    assert!(failure(&options(&url)).await.ends_with("no response within 10 s"));
    // The socket is closed, not left to a thread that waits for ever.
    let (mut accepted, _) = listener.accept().unwrap();
    std::io::Read::read_to_end(&mut accepted, &mut Vec::new()).unwrap();
}

// req: BU-01
#[tokio::test]
async fn virtual_hosts_are_apart() {
    let (one, two) = (vhost(), vhost());
    let (one, two) =
        (Bus::connect(&options(&one)).await.unwrap(), Bus::connect(&options(&two)).await.unwrap());
    let mut messages = subscribe(&one, "tool.#").await;
    two.publish(&topic("tool.result.a"), &message("m-1")).await.unwrap();
    one.publish(&topic("tool.result.a"), &message("m-2")).await.unwrap();
    assert_eq!(next_message(&mut messages).await.content.unwrap().message_id.as_str(), "m-2");
}

// req: BU-01
#[tokio::test]
async fn tls_needs_the_authority_and_the_certificate_of_the_client() {
    let files = TestCertificates::create();
    let broker = RabbitMqServer::start_with([RabbitMqSetting::Tls {
        ca: files.ca(),
        certificate: files.server_certificate(),
        key: files.server_key(),
    }]);
    let mut options = options(&broker.url());
    let error = failure(&options).await;
    assert!(error.contains("UnknownIssuer") || error.contains("certificate"), "{error}");
    options.ca_file = Some(files.ca());
    failure(&options).await;
    options.client_certificate =
        Some(ClientCertificate { certificate: files.client_certificate(), key: files.client_key() });
    let bus = Bus::connect(&options).await.unwrap();
    let mut messages = subscribe(&bus, "tool.#").await;
    bus.publish(&topic("tool.result.a"), &message("m-1")).await.unwrap();
    assert_eq!(next_message(&mut messages).await.content.unwrap().message_id.as_str(), "m-1");
}
