//! Changes of mode, owner, times and extended attributes: allowed where a server may write, refused elsewhere.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::hostile_server::{HostileServer, User, quoted, require_root, users};

/// Python functions that change attributes in many ways.
const CHANGES: &str = include_str!("attributes.py");

/// A server with a file in its folder, `work/plain`, and one outside, `other/plain`.
fn hostile_server(user: User) -> HostileServer {
    let hostile = HostileServer::new(user, json!({}));
    fs::write(hostile.path("work/plain"), "inside").unwrap();
    for file in ["work/plain", "other/plain", ".ssh/id_test"] {
        let file = hostile.path(file);
        rustix::fs::setxattr(&file, "user.test", b"set", rustix::fs::XattrFlags::empty()).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o604)).unwrap();
    }
    // Gives the new file to the server's user.
    hostile.configure(&json!({ "h": {} }));
    hostile
}

/// Everything that the changes could change, with the time of the last change of any attribute.
fn attributes(path: &Path) -> (u32, u32, u32, i64, i64, i64, i64) {
    let found = fs::metadata(path).unwrap();
    let (change, changed) = (found.ctime(), found.ctime_nsec());
    (found.mode(), found.uid(), found.gid(), found.mtime(), found.mtime_nsec(), change, changed)
}

/// Runs the code, which must leave the attributes of the file alone.
fn expect_unchanged(hostile: &HostileServer, file: &str, code: &str) -> String {
    let before = attributes(&hostile.path(file));
    let output = hostile.expect_ok(&format!("{CHANGES}\n{code}"));
    assert_eq!(attributes(&hostile.path(file)), before, "{file}: {code}");
    output
}

// req: SB-04, SB-08
#[test]
fn server_changes_attributes_in_its_folder() {
    for user in users() {
        let hostile = hostile_server(user);
        let inside = quoted(&hostile.path("work/plain"));
        let output = hostile.expect_ok(&format!("{CHANGES}\nattempt({inside})"));
        assert!(!output.contains("refused") && output.lines().count() > 25, "{user:?}: {output}");
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_change_attributes_elsewhere() {
    for user in users() {
        let hostile = hostile_server(user);
        for file in ["other/plain", ".ssh/id_test", ".ssh", "mcp.json"] {
            let outside = quoted(&hostile.path(file));
            let output = expect_unchanged(&hostile, file, &format!("attempt({outside})"));
            assert!(!output.contains("made:") && output.lines().count() > 25, "{user:?}: {file}: {output}");
        }
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_exchange_path_while_its_call_is_checked() {
    for user in users() {
        let hostile = hostile_server(user);
        // The paths have equal lengths, so that every mixture of both is one of them or missing.
        fs::create_dir(hostile.path("work/inside")).unwrap();
        fs::write(hostile.path("work/inside/plain"), "").unwrap();
        std::os::unix::fs::symlink(hostile.path("other"), hostile.path("work/escape")).unwrap();
        hostile.configure(&json!({ "h": {} }));
        let made = expect_unchanged(
            &hostile,
            "other/plain",
            "print(race('inside/plain', 'escape/plain', 3000, lambda path: libc.chmod(path, 0o640)))",
        );
        assert_ne!(made.trim(), "0", "some changes of the file inside succeed");
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_exchange_link_while_its_call_is_checked() {
    for user in users() {
        let hostile = hostile_server(user);
        let outside = quoted(&hostile.path("other"));
        let code = format!(
            "os.mkdir('folder'); open('folder/plain', 'w').close(); os.symlink('folder', 'a'); os.symlink({outside}, 'b')\n\
             stop = False\n\
             def exchange():\n    while not stop: libc.renameat2(CWD, b'a', CWD, b'b', 2)\n\
             thread = threading.Thread(target=exchange); thread.start(); made = 0\n\
             for _ in range(3000): made += libc.chmod(b'a/plain', 0o640) == 0\n\
             stop = True; thread.join(); print(made)"
        );
        assert_ne!(expect_unchanged(&hostile, "other/plain", &code).trim(), "0");
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_bring_file_from_elsewhere_into_its_folder() {
    for user in users() {
        let hostile = hostile_server(user);
        for attempt in ["os.link({}, 'moved')", "os.rename({}, 'moved')"] {
            let outside = quoted(&hostile.path("other/plain"));
            let attempt = attempt.replacen("{}", &outside, 1);
            let before = attributes(&hostile.path("other/plain"));
            hostile.attempt(&format!("{attempt}; os.chmod('moved', 0o640)")).unwrap_err();
            assert_eq!(attributes(&hostile.path("other/plain")), before);
        }
    }
}

// req: SB-04, SB-08
#[test]
fn paths_through_processes_are_refused() {
    for user in users() {
        let hostile = hostile_server(user);
        let outside = hostile.path("other/plain");
        let name = outside.to_str().unwrap();
        for path in [
            format!("/proc/self/root{name}"),
            format!("/proc/thread-self/root{name}"),
            "/proc/self/cwd/../other/plain".to_owned(),
            "/proc/self/fd/../cwd/../other/plain".to_owned(),
        ] {
            hostile.attempt(&format!("os.chmod({path:?}, 0o640)")).unwrap_err();
        }
        let code = format!(
            "folder = os.open({}, os.O_RDONLY); os.chmod(f'/proc/self/fd/{{folder}}/plain', 0o640)",
            quoted(&hostile.path("other"))
        );
        hostile.attempt(&code).unwrap_err();
        // By the paths of the process above the server, in which `/proc/self` is resolved.
        let code = format!("os.chmod(f'/proc/{{os.getppid()}}/root{name}', 0o640)");
        hostile.attempt(&code).unwrap_err();
        assert_eq!(outside.metadata().unwrap().mode() & 0o777, 0o604);
    }
}

// req: SB-04, SB-08
#[test]
fn process_that_hides_its_memory_changes_nothing_elsewhere() {
    const HIDE: &str = "libc.prctl(4, 0, 0, 0, 0)"; // PR_SET_DUMPABLE
    for user in users() {
        let hostile = hostile_server(user);
        let outside = quoted(&hostile.path("other/plain"));
        let output = expect_unchanged(&hostile, "other/plain", &format!("{HIDE}; attempt({outside})"));
        assert!(!output.contains("made:"), "{user:?}: {output}");
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_give_files_away() {
    for user in users() {
        let hostile = hostile_server(user);
        for change in
            ["os.chown('plain', 1234, -1)", "os.chown('plain', -1, 1234)", "os.fchown(0, 1234, 1234)"]
        {
            hostile.expect_denied(change);
        }
        hostile.expect_ok("os.chown('plain', -1, -1)");
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_change_files_of_others_in_its_folder() {
    // Another user's file in the folder, which a server of root could change with the rights of its reaper.
    require_root("the test gives files to other users");
    for (user, owner) in [(User::Current, 65534), (User::Nobody, 0)] {
        let hostile = hostile_server(user);
        let file = hostile.path("work/plain");
        chown(&file, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        let output = expect_unchanged(&hostile, "work/plain", &format!("attempt({})", quoted(&file)));
        assert!(!output.contains("made:"), "{user:?}: {output}");
    }
}

// req: SB-04, SB-08
#[test]
fn attributes_with_rights_are_refused() {
    for user in users() {
        let hostile = hostile_server(user);
        for name in ["security.capability", "security.selinux", "trusted.a", "system.other"] {
            hostile.expect_denied(&format!("os.setxattr('plain', {name:?}, bytes(20))"));
            hostile.expect_denied(&format!("os.removexattr('plain', {name:?})"));
        }
    }
}

// req: SB-04, SB-08
#[test]
fn shared_folders_themselves_stay_as_they_are() {
    for user in users() {
        let hostile = hostile_server(user);
        for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
            hostile.expect_denied(&format!("os.chmod({folder:?}, 0o777)"));
            hostile.expect_denied(&format!("os.utime({folder:?}, (1, 2))"));
        }
        hostile.expect_ok("os.chmod('.', 0o755); os.utime('.', (1, 2))");
    }
}

// req: SB-04, SB-08
#[test]
fn second_mount_does_not_open_files_elsewhere() {
    /// A bind mount that ends with the test.
    struct Mount<'a>(&'a Path);
    impl Drop for Mount<'_> {
        fn drop(&mut self) {
            assert!(Command::new("umount").arg(self.0).status().unwrap().success());
        }
    }
    require_root("the test mounts a folder");
    for user in users() {
        let hostile = hostile_server(user);
        let (outside, second) = (hostile.path("other"), hostile.path("second"));
        fs::create_dir(&second).unwrap();
        let done = Command::new("mount").arg("--bind").args([&outside, &second]).status();
        assert!(done.unwrap().success());
        let _mount = Mount(&second);
        let file = quoted(&hostile.path("second/plain"));
        let output = expect_unchanged(&hostile, "other/plain", &format!("attempt({file})"));
        assert!(!output.contains("made:"), "{user:?}: {output}");
    }
}

// req: SB-04, SB-08
#[test]
fn files_without_names_can_be_changed() {
    for user in users() {
        let hostile = hostile_server(user);
        hostile.expect_ok("os.fchmod(os.memfd_create('memory'), 0o600)");
        hostile.expect_ok("os.fchmod(os.pipe()[0], 0o600)");
        hostile
            .expect_ok("import tempfile; file = tempfile.TemporaryFile(); os.utime(file.fileno(), (1, 2))");
        // A name that looks like a granted path does not help.
        let name = quoted(&hostile.path("other/plain"));
        hostile.expect_denied(&format!("os.fchmod(os.open({name}, os.O_RDONLY), 0o640)"));
    }
}

// req: SB-04, SB-08
#[test]
fn bad_arguments_fail_as_the_kernel_would_fail_them() {
    for user in users() {
        let hostile = hostile_server(user);
        for (code, error) in [
            ("os.chmod('missing', 0o640)", "FileNotFoundError"),
            ("os.chmod('plain/below', 0o640)", "NotADirectoryError"),
            ("os.chmod('x' * 300, 0o640)", "OSError: [Errno 36]"),
            ("os.chmod('x/' * 3000, 0o640)", "OSError: [Errno 36]"),
            ("os.fchmod(99, 0o640)", "OSError: [Errno 9]"),
            ("os.chmod('plain', 0o640, dir_fd=99)", "OSError: [Errno 9]"),
            ("os.symlink('loop', 'loop'); os.chmod('loop', 0o640)", "OSError: [Errno 40]"),
            ("call(FCHMODAT2, CWD, b'plain', 0o640, 1)", "OSError: [Errno 22]"),
            ("call(FCHMODAT2, CWD, b'', 0o640, 0)", "FileNotFoundError"),
            ("call(FCHMODAT2, CWD, None, 0o640, 0)", "OSError: [Errno 14]"),
            ("os.setxattr('plain', 'user.' + 'x' * 300, b'')", "OSError: [Errno 34]"),
            ("os.setxattr('plain', 'user.big', bytes(70000))", "OSError: [Errno 7]"),
            ("os.setxattr('plain', 'user.test', b'', os.XATTR_CREATE)", "FileExistsError"),
        ] {
            let failed = hostile.attempt(&format!("{CHANGES}\n{code}")).unwrap_err();
            assert!(failed.starts_with(error), "{user:?}: {code}: {failed}");
        }
    }
}

// req: SB-04, SB-08
#[test]
fn many_processes_and_signals_do_not_disturb_changes() {
    for user in users() {
        let hostile = hostile_server(user);
        hostile.expect_ok(
            "import signal\n\
             signal.signal(signal.SIGALRM, lambda *_: None); signal.siginterrupt(signal.SIGALRM, False)\n\
             children = []\n\
             for child in range(4):\n    \
                 children.append(os.fork())\n    \
                 if children[-1] == 0:\n        \
                     signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n        \
                     open(f'child-{child}', 'w').close()\n        \
                     for time in range(500): os.utime(f'child-{child}', (time, time))\n        \
                     os._exit(0 if os.stat(f'child-{child}').st_mtime == 499 else 1)\n\
             assert all(os.waitpid(child, 0)[1] == 0 for child in children)",
        );
    }
}

// req: SB-04, SB-08
#[test]
fn archives_are_extracted_and_trees_are_copied() {
    const EXTRACT: &str = r#"
import io, shutil, subprocess, tarfile, tempfile
with tarfile.open('package.tgz', 'w:gz') as archive:
    for name, mode in [('package', 0o755), ('package/bin', 0o700), ('package/bin/run', 0o755), ('package/read-only', 0o444)]:
        entry = tarfile.TarInfo(name)
        entry.mode, entry.mtime, entry.uid, entry.gid = mode, 499162500, os.getuid(), os.getgid()
        entry.type = tarfile.REGTYPE if '/' in name and name != 'package/bin' else tarfile.DIRTYPE
        archive.addfile(entry, io.BytesIO())
    link = tarfile.TarInfo('package/link'); link.type = tarfile.SYMTYPE; link.linkname = 'bin/run'; link.mtime = 499162500; link.uid, link.gid = os.getuid(), os.getgid()
    archive.addfile(link)
def check(folder):
    found = os.stat(f'{folder}/package/bin/run')
    assert (found.st_mode & 0o777, found.st_mtime) == (0o755, 499162500), (folder, found)
    assert os.stat(f'{folder}/package/read-only').st_mode & 0o777 == 0o444
for place in (os.getcwd(), tempfile.gettempdir()):
    folder = tempfile.mkdtemp(dir=place)
    with tarfile.open('package.tgz') as archive: archive.extractall(f'{folder}/python')
    check(f'{folder}/python')
    os.mkdir(f'{folder}/tar')
    subprocess.run(['tar', '-xpzf', 'package.tgz', '--no-same-owner', '-C', f'{folder}/tar'], check=True)
    check(f'{folder}/tar')
    shutil.copytree(f'{folder}/python', f'{folder}/copy', symlinks=True)
    check(f'{folder}/copy')
    subprocess.run(['cp', '-a', f'{folder}/python', f'{folder}/cp'], check=True)
    check(f'{folder}/cp')
    subprocess.run(['install', '-m', '755', 'package.tgz', f'{folder}/installed'], check=True)
    os.utime(f'{folder}/cp/package/link', (1, 2), follow_symlinks=False)
    assert os.lstat(f'{folder}/cp/package/link').st_mtime == 2
    check(f'{folder}/cp')
    shutil.rmtree(folder)
"#;
    for user in users() {
        hostile_server(user).expect_ok(EXTRACT);
    }
}
