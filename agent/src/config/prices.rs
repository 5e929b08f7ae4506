//! The keys of prices, of which there are as many as there are clouds: `prices.PROVIDER.KEY`.

use firedoor_core::prices::{Billed, Price, Prices, Tariff};

use super::value::Value;

/// A provider's keys: prices before who pays them, for a payer without a price means nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum PriceKey {
    ZoneUsdPerGb,
    RegionUsdPerGb,
    ZoneBilled,
    RegionBilled,
    AsOf,
}

impl PriceKey {
    pub(super) const ALL: [Self; 5] =
        [Self::ZoneUsdPerGb, Self::RegionUsdPerGb, Self::ZoneBilled, Self::RegionBilled, Self::AsOf];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ZoneUsdPerGb => "zoneUsdPerGb",
            Self::RegionUsdPerGb => "regionUsdPerGb",
            Self::ZoneBilled => "zoneBilled",
            Self::RegionBilled => "regionBilled",
            Self::AsOf => "asOf",
        }
    }

    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::ZoneUsdPerGb => "US dollars for 10^9 bytes between zones, all ends together",
            Self::RegionUsdPerGb => "US dollars for 10^9 bytes between regions, all ends together",
            Self::ZoneBilled => "who pays between zones: both-ends, sender, nobody",
            Self::RegionBilled => "who pays between regions: both-ends, sender, nobody",
            Self::AsOf => "the day of which these prices are",
        }
    }

    pub(super) fn set(self, prices: &mut Prices, provider: &str, value: &Value) -> Result<(), String> {
        let unknown = || Tariff { zone: None, region: None, as_of: "the configuration".to_owned() };
        let tariff = prices.0.entry(provider.to_owned()).or_insert_with(unknown);
        match self {
            Self::ZoneUsdPerGb => cost(&mut tariff.zone, value.number()?),
            Self::RegionUsdPerGb => cost(&mut tariff.region, value.number()?),
            Self::ZoneBilled => bill(&mut tariff.zone, value)?,
            Self::RegionBilled => bill(&mut tariff.region, value)?,
            Self::AsOf => value.text()?.clone_into(&mut tariff.as_of),
        }
        Ok(())
    }

    pub(super) fn get(self, tariff: &Tariff) -> Option<Value> {
        let usd = |price: &Option<Price>| Some(Value::Number(price.as_ref()?.usd_per_gb));
        let billed = |price: &Option<Price>| {
            let billed = price.as_ref()?.billed;
            BILLED.iter().find(|(_, b)| *b == billed).map(|(name, _)| Value::Text((*name).to_owned()))
        };
        match self {
            Self::ZoneUsdPerGb => usd(&tariff.zone),
            Self::RegionUsdPerGb => usd(&tariff.region),
            Self::ZoneBilled => billed(&tariff.zone),
            Self::RegionBilled => billed(&tariff.region),
            Self::AsOf => Some(Value::Text(tariff.as_of.clone())),
        }
    }
}

const BILLED: [(&str, Billed); 3] =
    [("both-ends", Billed::BothEnds), ("sender", Billed::Sender), ("nobody", Billed::Nobody)];

fn cost(price: &mut Option<Price>, usd_per_gb: f64) {
    let billed = price.as_ref().map_or(Billed::Sender, |price| price.billed);
    *price = Some(Price { usd_per_gb, billed });
}

fn bill(price: &mut Option<Price>, value: &Value) -> Result<(), String> {
    let text = value.text()?;
    let billed = BILLED.iter().find(|(name, _)| *name == text).map(|(_, billed)| *billed);
    let billed = billed.ok_or_else(|| "must be one of both-ends, sender, nobody".to_owned())?;
    let price = price.as_mut().ok_or_else(|| "there is no price for it to pay".to_owned())?;
    price.billed = billed;
    Ok(())
}
