//! The decision about every chosen function: where to probe its entry, how to see its end, and why.

use super::exits::{self, ExitPlan, ExitRequest, ProcessFacts};
use super::flow::Traits;
use super::probe::SiteCost;
use super::site::{Chooser, Site, SiteReason, SiteRefusal, Stop};
use super::text::Disassembler;
use super::{Image, ImageFunction};

/// What exits are wanted, of which process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitPolicy {
    /// As asked for.
    pub requested: ExitRequest,
    /// Facts about the process.
    pub process: ProcessFacts,
}

/// What will be done with one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitePlan {
    /// Index in [`Image::functions`].
    pub function: usize,
    /// Where to probe, or why not.
    pub site: Result<Site, SiteRefusal>,
    /// How its end is seen.
    pub exit: ExitPlan,
}

impl SitePlan {
    /// Why the site was chosen or refused, for people.
    pub fn site_reason(&self) -> String {
        match &self.site {
            Ok(site) => site.reason.to_string(),
            Err(refusal) => refusal.to_string(),
        }
    }

    /// The probed instruction, for people; empty if there is none.
    pub fn instruction(&self, image: &Image<'_>, disassembler: &Disassembler) -> String {
        let function = image.functions().get(self.function);
        let (Ok(site), Some(function)) = (&self.site, function) else {
            return String::new();
        };
        let bytes = image
            .code(function)
            .get(site.delta as usize..)
            .unwrap_or_default();
        disassembler.text(
            bytes,
            function.vaddr + u64::from(site.delta),
            usize::from(site.len),
        )
    }
}

/// Decides for the functions with these indices, in the given order. Nothing is left out silently: an index that is
/// no function is the only thing that has no plan.
pub fn plan_sites(image: &Image<'_>, functions: &[usize], policy: &ExitPolicy) -> Vec<SitePlan> {
    let analysis = image.analysis();
    let chooser = Chooser {
        flow: analysis.flow,
        unwind: analysis.unwind,
        kernel: policy.process.kernel,
        go: image.is_go(),
    };
    let disassembler = Disassembler::new();
    let planned = functions.iter().filter_map(|&index| {
        let function = image.functions().get(index)?;
        let traits = analysis.flow.traits.get(index)?;
        let site = chooser.choose(function, traits, image.code(function));
        let site =
            site.map(|site| confirmed(image, function, traits, site, &disassembler, &chooser));
        let exit = match site {
            Ok(_) => exits::decide(image, index, policy.requested, &policy.process),
            Err(_) => ExitPlan::not_probed(),
        };
        Some(SitePlan {
            function: index,
            site,
            exit,
        })
    });
    planned.collect()
}

/// A site behind the entry is used only if a second decoder sees an instruction there too.
fn confirmed(
    image: &Image<'_>,
    function: &ImageFunction,
    traits: &Traits,
    site: Site,
    disassembler: &Disassembler,
    chooser: &Chooser<'_>,
) -> Site {
    if site.delta == 0
        || disassembler.confirms(
            image.code(function),
            site.delta as usize,
            usize::from(site.len),
        )
    {
        return site;
    }
    let at = function.vaddr + u64::from(site.delta);
    let entry = chooser.entry(function, traits, image.code(function));
    entry.map_or(site, |entry| Site {
        reason: SiteReason::NoCheaper(Stop::DecodersDisagree(at)),
        ..entry
    })
}

/// Whether a hit costs one trap at most.
pub const fn is_cheap(cost: SiteCost) -> bool {
    matches!(cost, SiteCost::Nop5 | SiteCost::Emulated)
}
