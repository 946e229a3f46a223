//! The program: parses the command line and leaves the rest to the library.

fn main() -> std::process::ExitCode {
    bascule::cli::main()
}
