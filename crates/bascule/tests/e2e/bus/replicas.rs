//! Processes of `bascule serve --agent a` with one configuration file.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::support::{Bascule, eventually};

/// The replicas of one agent's bridge. They are killed when dropped.
pub struct Replicas {
    pub bascule: Bascule,
    arguments: Vec<String>,
    processes: Vec<Replica>,
}

struct Replica {
    child: Child,
    stderr: Arc<Mutex<String>>,
}

impl Replicas {
    /// Prepares the bridge of an agent. Starts no process.
    pub fn new(config: &Value, agent: &str, url: &str) -> Self {
        let arguments = ["serve", "--agent", agent, "--bus", url].map(str::to_owned).to_vec();
        Self { bascule: Bascule::with_text(&config.to_string()), arguments, processes: Vec::new() }
    }

    /// Starts a replica, and waits until it serves the bus. Returns its number.
    pub fn start(&mut self) -> usize {
        let replica = self.spawn();
        self.wait_for_line(replica, "serving agent");
        replica
    }

    /// Starts a replica.
    pub fn spawn(&mut self) -> usize {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut child = self.bascule.command(&arguments).stdout(Stdio::null()).spawn().unwrap();
        let (lines, stderr) =
            (BufReader::new(child.stderr.take().unwrap()).lines(), Arc::<Mutex<String>>::default());
        let collected = stderr.clone();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| *collected.lock().unwrap() += &(line + "\n"));
        });
        self.processes.push(Replica { child, stderr });
        self.processes.len() - 1
    }

    pub fn wait_for_line(&self, replica: usize, part: &str) {
        eventually(&format!("a replica logs `{part}`"), || self.stderr(replica).contains(part));
    }

    /// Waits until one of the replicas logs a line, and returns its number.
    pub fn wait_for_one_line(&self, replicas: &[usize], part: &str) -> usize {
        let mut found = None;
        eventually(&format!("one of the replicas logs `{part}`"), || {
            found = replicas.iter().copied().find(|replica| self.stderr(*replica).contains(part));
            found.is_some()
        });
        found.expect("it was found")
    }

    pub fn stderr(&self, replica: usize) -> String {
        self.processes[replica].stderr.lock().unwrap().clone()
    }

    pub fn pid(&self, replica: usize) -> u32 {
        self.processes[replica].child.id()
    }

    /// Kills a replica with SIGKILL.
    pub fn kill(&mut self, replica: usize) {
        let child = &mut self.processes[replica].child;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until a replica has exited by itself.
    pub fn wait_for_exit(&mut self, replica: usize) {
        let child = &mut self.processes[replica].child;
        eventually("the replica exits", || child.try_wait().unwrap().is_some());
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        for replica in &mut self.processes {
            let _ = replica.child.kill();
            let _ = replica.child.wait();
        }
    }
}
