//! `cargo xtask conformance`: the upstream suites on the test rig, with their reports in the documents.

use crate::cluster;
use crate::step;
use crate::workspace::Workspace;

/// One upstream suite.
struct Suite {
    /// Its folder in `tests/conformance`, and its report in `docs/conformance`.
    name: &'static str,
    /// What is claimed; `docs/conformance` says what is not, and why.
    claims: &'static [&'static str],
}

const SUITES: [Suite; 2] = [
    Suite {
        name: "gateway-api",
        claims: &["-supported-features=Gateway,HTTPRoute,ReferenceGrant", "-conformance-profiles=GATEWAY-HTTP"],
    },
    // Its release of the Gateway API is older than the one that the rig installs.
    Suite { name: "inference", claims: &["-allow-crds-mismatch"] },
];

/// Whether the reports in the documents are written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reports {
    Documented,
    /// They go to the target folder.
    Aside,
}

/// Builds everything, runs each suite in a cluster of its own, and fails if a test of it does.
pub(crate) fn run(workspace: &Workspace, reports: Reports) -> anyhow::Result<()> {
    cluster::build(workspace)?;
    let folder = match reports {
        Reports::Documented => workspace.root.join("docs/conformance"),
        Reports::Aside => workspace.target.join("conformance"),
    };
    std::fs::create_dir_all(&folder)?;
    // The second one waits on real times, and fails on a machine that is busy with other things.
    let suites = match reports {
        Reports::Documented => &SUITES[..],
        Reports::Aside => &SUITES[..1],
    };
    for suite in suites {
        let report = folder.join(format!("{}.yaml", suite.name));
        let mut command = cluster::rig(workspace);
        command.arg("suite").args(cluster::installation(workspace));
        command.arg(workspace.root.join("tests/conformance").join(suite.name)).arg("--").args(suite.claims);
        command.arg(format!("-report-output={}", report.display()));
        step::run(&mut command)?;
    }
    Ok(())
}
