//! `cargo xtask conformance`: the upstream suite of the Gateway API on the test rig, with its report in the documents.

use crate::cluster;
use crate::step;
use crate::workspace::Workspace;

/// What is claimed; `docs/conformance` says what is not, and why.
const FEATURES: &str = "-supported-features=Gateway,HTTPRoute,ReferenceGrant";
const PROFILES: &str = "-conformance-profiles=GATEWAY-HTTP";
const REPORT: &str = "docs/conformance/gateway-api.yaml";

/// Builds everything, runs the suite in a cluster of its own, and fails if a test of it does.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    cluster::build(workspace)?;
    let report = workspace.root.join(REPORT);
    let mut command = cluster::rig(workspace);
    command.arg("suite").args(cluster::installation(workspace));
    command.arg(workspace.root.join("tests/conformance/gateway-api"));
    command.args(["--", FEATURES, PROFILES]).arg(format!("-report-output={}", report.display()));
    step::run(&mut command)
}
