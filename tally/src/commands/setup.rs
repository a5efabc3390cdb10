//! `tally setup`: topic, keyspace, tables and layout; again, it changes nothing and says so.

use anyhow::ensure;

use crate::settings::Settings;
use crate::wiring;

pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    ensure!(
        settings.kafka.brokers.is_some() || settings.cql.contact_points.is_some(),
        "nothing to set up: the embedded log and store need no setup. Name kafka.brokers \
         (TALLY__KAFKA__BROKERS) and cql.contact_points (TALLY__CQL__CONTACT_POINTS)"
    );
    for done in wiring::set_up(settings).await? {
        let outcome = if done.created { "created" } else { "already there, unchanged" };
        println!("{}: {outcome}", done.what);
    }
    Ok(())
}
