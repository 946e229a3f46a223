//! Certificates for tests of TLS, made by `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::folder::ScriptFolder;

/// An authority with a certificate for servers on 127.0.0.1 and one for clients, in PEM files. Dropping it removes them.
pub struct TestCertificates {
    folder: ScriptFolder,
}

impl TestCertificates {
    /// # Panics
    /// If `openssl` is missing or fails.
    pub fn create() -> Self {
        let folder = ScriptFolder::create();
        let output = Command::new("sh").arg("-ec").arg(SCRIPT).current_dir(folder.path()).output();
        let output = output.expect("`sh` starts");
        assert!(
            output.status.success(),
            "could not make certificates; is `openssl` installed? {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(self.folder.path()).join(name)
    }

    pub fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    pub fn server_certificate(&self) -> PathBuf {
        self.file("server.pem")
    }

    pub fn server_key(&self) -> PathBuf {
        self.file("server.key")
    }

    pub fn client_certificate(&self) -> PathBuf {
        self.file("client.pem")
    }

    pub fn client_key(&self) -> PathBuf {
        self.file("client.key")
    }
}

impl Drop for TestCertificates {
    fn drop(&mut self) {
        self.folder.remove();
    }
}

const SCRIPT: &str = r#"
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $key -keyout ca.key -out ca.pem -days 2 -subj /CN=bascule-test-ca
sign() {
  printf '%s\n' "$2" >"$1.ext"
  openssl req -new $key -keyout "$1.key" -out "$1.csr" -subj "/CN=$1"
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -out "$1.pem" -days 2 -extfile "$1.ext"
}
sign server "subjectAltName=IP:127.0.0.1,DNS:localhost"
sign client "extendedKeyUsage=clientAuth"
"#;
