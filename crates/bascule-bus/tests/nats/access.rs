//! Proof of identity and TLS.

use std::path::{Path, PathBuf};
use std::process::Command;

use bascule_bus::{Bus, BusCredentials, BusOptions, BusUrl, ClientCertificate};
use bascule_model::Secret;
use bascule_testkit::{NatsServer, NatsSetting, broker_program};
use serde_json::Value;

use crate::support::{connect, id_of, next_message, options, publish, subscribe};

fn with(server: &NatsServer, credentials: BusCredentials) -> BusOptions {
    BusOptions { credentials, ..options(server) }
}

fn password(user: &str, password: &str) -> BusCredentials {
    BusCredentials::Password { user: user.into(), password: Secret::new(password.into()) }
}

async fn check_accepted(options: &BusOptions) {
    let bus = Bus::connect(options).await.unwrap();
    let mut subscription = subscribe(&bus, "tool.result.a").await;
    publish(&bus, "tool.result.a", "m-1", "bridge").await;
    assert_eq!(id_of(&next_message(&mut subscription).await), "m-1");
}

async fn check_refused(options: &BusOptions, reason: &str) {
    let error = Bus::connect(options).await.err().expect("the server refuses").to_string();
    assert!(error.contains(reason) && error.starts_with("could not connect to the bus at `"), "{error}");
    assert!(!error.contains("secret") && !error.contains("SUA"), "{error}");
    assert!(!format!("{options:?}").contains("secret"));
}

// req: BU-01
#[tokio::test]
async fn connects_with_user_and_password() {
    let setting = NatsSetting::Password { user: "u".into(), password: "secret".into() };
    let server = NatsServer::start_with([setting]);
    check_accepted(&with(&server, password("u", "secret"))).await;
    check_refused(&with(&server, password("u", "secret2")), "the server refused the user and password").await;
    check_refused(&options(&server), "the server refused a connection without credentials").await;
    let in_url = |password: &str| {
        let url = server.url().replace("://", &format!("://u:{password}@"));
        BusOptions::new(BusUrl::parse(&url).unwrap())
    };
    check_accepted(&in_url("secret")).await;
    check_refused(&in_url("secret2"), "the server refused the user in the address").await;
}

// req: BU-01
#[tokio::test]
async fn connects_with_a_token() {
    let server = NatsServer::start_with([NatsSetting::Token("secret".into())]);
    check_accepted(&with(&server, BusCredentials::Token(Secret::new("secret".into())))).await;
    let wrong = with(&server, BusCredentials::Token(Secret::new("secret2".into())));
    check_refused(&wrong, "the server refused the token").await;
}

/// New keys and JWTs.
fn new_credentials() -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/nats_credentials.py");
    let output = Command::new(broker_program("python")).arg(script).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

// req: BU-01
#[tokio::test]
async fn connects_with_an_nkey() {
    let (keys, others) = (new_credentials(), new_credentials());
    let server = NatsServer::start_with([NatsSetting::NKey(text(&keys["public"]))]);
    let nkey = |seed: String| with(&server, BusCredentials::NKey(Secret::new(seed)));
    check_accepted(&nkey(text(&keys["seed"]))).await;
    check_accepted(&nkey(text(&keys["seed"]) + "\n")).await;
    check_refused(&nkey(text(&others["seed"])), "the server refused the NKey").await;
    check_refused(&nkey("secret".into()), "the NKey seed cannot sign").await;
}

// req: BU-01
#[tokio::test]
async fn connects_with_a_credentials_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (keys, others) = (new_credentials(), new_credentials());
    let (operator, account, jwt) =
        (text(&keys["operator"]), text(&keys["account"]), text(&keys["account_jwt"]));
    let lines = format!(
        "operator: {operator}\nresolver: MEMORY\nresolver_preload: {{ {account}: {jwt} }}\njetstream: disabled"
    );
    // JetStream would need a system account, too.
    let server = NatsServer::start_with([NatsSetting::Lines(lines)]);
    let file = |path: PathBuf| with(&server, BusCredentials::CredentialsFile(path));
    check_accepted(&file(write("user.creds", &text(&keys["credentials"])))).await;
    let other = write("other.creds", &text(&others["credentials"]));
    check_refused(&file(other), "the server refused the credentials file").await;
    check_refused(&file(write("wrong.creds", "secret")), "wrong.creds` has no JWT and NKey seed").await;
    check_refused(&file(folder.path().join("absent.creds")), "absent.creds`: No such file").await;
}

/// A folder with `ca`, `server` and `client` certificates and keys.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let certificates = Self(tempfile::tempdir().unwrap());
        certificates.make("ca", &["-addext", "keyUsage=keyCertSign"]);
        for name in ["server", "client"] {
            let (ca, key) = (certificates.certificate("ca"), certificates.key("ca"));
            let (ca, key) = (ca.to_str().unwrap(), key.to_str().unwrap());
            let names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"];
            certificates.make(name, &[&["-CA", ca, "-CAkey", key], &names[..]].concat());
        }
        certificates
    }

    fn make(&self, name: &str, arguments: &[&str]) {
        let key = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let made = Command::new("openssl")
            .args(key)
            .args(["-days", "2", "-subj", &format!("/CN={name}")])
            .args(arguments)
            .arg("-out")
            .arg(self.certificate(name))
            .arg("-keyout")
            .arg(self.key(name))
            .output()
            .expect("`openssl` is missing: install it");
        assert!(made.status.success(), "{made:?}");
    }

    fn certificate(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}.pem"))
    }

    fn key(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}.key"))
    }

    fn server(&self, client_ca: Option<&str>) -> NatsServer {
        NatsServer::start_with([NatsSetting::Tls {
            certificate: self.certificate("server"),
            key: self.key("server"),
            client_ca: client_ca.map(|name| self.certificate(name)),
        }])
    }
}

// req: BU-01
#[tokio::test]
async fn connects_with_tls_to_a_server_of_a_trusted_authority() {
    let certificates = Certificates::new();
    let server = certificates.server(None);
    let trusting = BusOptions { ca_file: Some(certificates.certificate("ca")), ..options(&server) };
    check_accepted(&trusting).await;
    // The machine's own authorities do not know it.
    check_refused(&options(&server), "certificate").await;
    let absent = BusOptions { ca_file: Some(certificates.certificate("absent")), ..options(&server) };
    check_refused(&absent, "absent.pem`: No such file").await;
}

// req: BU-01
#[tokio::test]
async fn connects_with_a_client_certificate() {
    let certificates = Certificates::new();
    let server = certificates.server(Some("ca"));
    let without = BusOptions { ca_file: Some(certificates.certificate("ca")), ..options(&server) };
    let client = |certificate: &str| ClientCertificate {
        certificate: certificates.certificate(certificate),
        key: certificates.key("client"),
    };
    check_accepted(&BusOptions { client_certificate: Some(client("client")), ..without.clone() }).await;
    check_refused(&without, "").await;
    let absent = BusOptions { client_certificate: Some(client("absent")), ..without };
    check_refused(&absent, "absent.pem`: No such file").await;
}

// req: BU-01
#[tokio::test]
async fn connects_to_the_first_server_that_responds() {
    let mut gone = NatsServer::start();
    let server = NatsServer::start();
    gone.kill();
    let url = format!("{},{}", gone.url(), server.url());
    check_accepted(&BusOptions::new(BusUrl::parse(&url).unwrap())).await;
    check_refused(&options(&gone), "Connection refused").await;
    connect(&server).await.close().await;
}
