//! Which GPUs there are.

use std::fmt;

use ferrax_ir::{Result, value_error};
use wgpu::{Adapter, Backends, DeviceType, Instance, InstanceDescriptor};

/// Which GPU is meant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// The first that is one: not a processor that plays one.
    #[default]
    Any,
    /// By its number among [`adapters`].
    Index(usize),
    /// One whose name, or that of whose driver, contains this, in any case of letters.
    Name(String),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Any => write!(f, "was found that is not software"),
            Choice::Index(number) => write!(f, "has number {number}"),
            Choice::Name(part) => write!(f, "has '{part}' in its name or its driver's"),
        }
    }
}

pub(crate) fn found() -> Vec<Adapter> {
    let backends = Backends::PRIMARY;
    let instance =
        Instance::new(InstanceDescriptor { backends, ..InstanceDescriptor::new_without_display_handle() });
    pollster::block_on(instance.enumerate_adapters(backends))
}

pub(crate) fn described(adapter: &Adapter) -> String {
    let info = adapter.get_info();
    let kind = if info.device_type == DeviceType::Cpu { ", software" } else { "" };
    format!("{} ({} {}{kind})", info.name, info.backend, info.driver)
}

/// What GPUs there are, and processors that play one, in words.
pub fn adapters() -> Vec<String> {
    found().iter().map(described).collect()
}

/// The numbers of the GPUs that a text names, and how many adapters there are: parts of names, or numbers, separated by commas,
/// each of which is one GPU; the same one twice is two devices. Of nothing: all that are not software, by the first one's
/// backend, as another may know the same ones.
///
/// Errors: a value error that says which there are and what to install, if one is none.
pub fn choose_each(text: &str) -> Result<(Vec<usize>, usize)> {
    let all = found();
    if text.trim().is_empty() {
        let backend = all[number(&all, &Choice::Any)?].get_info().backend;
        let taken = |adapter: &Adapter| {
            let info = adapter.get_info();
            info.device_type != DeviceType::Cpu && info.backend == backend
        };
        return Ok(((0..all.len()).filter(|&number| taken(&all[number])).collect(), all.len()));
    }
    let choice = |part: &str| match part.trim().parse() {
        Ok(number) => Choice::Index(number),
        Err(_) => Choice::Name(part.trim().to_string()),
    };
    let chosen = text.split(',').map(|part| number(&all, &choice(part))).collect::<Result<_>>()?;
    Ok((chosen, all.len()))
}

pub(crate) fn number(all: &[Adapter], choice: &Choice) -> Result<usize> {
    let names: Vec<String> = all.iter().map(described).collect();
    let hardware = |adapter: &Adapter| adapter.get_info().device_type != DeviceType::Cpu;
    let number = match choice {
        Choice::Any => all.iter().position(hardware),
        Choice::Index(number) => (*number < all.len()).then_some(*number),
        Choice::Name(part) => {
            let part = part.to_lowercase();
            names.iter().position(|name| name.to_lowercase().contains(&part))
        }
    };
    number.ok_or_else(|| {
        let there = if names.is_empty() { "none at all".to_string() } else { names.join("; ") };
        value_error!(
            "no GPU {choice}; there are: {there}. A GPU needs a driver of Vulkan, Metal or DX12; Mesa's software GPU \
             (Debian: mesa-vulkan-drivers, libvulkan1) is taken where its name, llvmpipe, is given"
        )
    })
}
