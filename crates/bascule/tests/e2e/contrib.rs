//! The files for operators in `contrib/` satisfy the real linters of their formats.

use std::process::{Command, Output};

use crate::support::{project_file, test_env};

const KUBERNETES: [&str; 3] = ["nats.yaml", "bridge.yaml", "agent.yaml"];

#[track_caller]
fn check(output: Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

// req: BU-01
#[test]
fn yaml_files_satisfy_yamllint() {
    let rules = "{extends: default, rules: {line-length: {max: 140}, document-start: disable}}";
    let files = [project_file("contrib/compose.yaml"), project_file("contrib/kubernetes")];
    check(
        Command::new(test_env("linters/bin/yamllint"))
            .args(["--strict", "-d", rules])
            .args(files)
            .output()
            .unwrap(),
    );
}

// req: BU-01
#[test]
fn manifests_satisfy_the_schemas_of_kubernetes() {
    for file in KUBERNETES {
        let path = project_file(&format!("contrib/kubernetes/{file}"));
        check(
            Command::new(test_env("linters/bin/kubernetes-validate"))
                .arg("--strict")
                .arg(path)
                .output()
                .unwrap(),
        );
    }
}

// req: BU-01
#[test]
fn compose_file_satisfies_the_compose_specification() {
    let linter = test_env("validators/node_modules/.bin/dclint");
    check(Command::new(linter).arg("--quiet").arg(project_file("contrib/compose.yaml")).output().unwrap());
}

/// Reads a file out of a ConfigMap.
fn config_map(manifest: &str, file: &str) -> String {
    let program = "import sys, yaml\n\
        maps = [part for part in yaml.safe_load_all(open(sys.argv[1])) if part['kind'] == 'ConfigMap']\n\
        print(maps[0]['data'][sys.argv[2]])";
    let mut command = Command::new(test_env("agents/bin").join("python"));
    let output = command.args(["-c", program]).arg(project_file(manifest)).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

// req: BU-01
#[test]
fn nats_accepts_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nats.conf");
    std::fs::write(&path, config_map("contrib/kubernetes/nats.yaml", "nats.conf")).unwrap();
    let mut server = Command::new(test_env("brokers/bin/nats-server"));
    server.envs([("POD_NAME", "nats-0"), ("BRIDGE_PASSWORD", "a"), ("AGENT_PASSWORD", "b")]);
    check(server.arg("-t").arg("-c").arg(path).output().unwrap());
}
