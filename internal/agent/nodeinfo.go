package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// The steps of bytes of disk, so that the noise of a busy host does not change the value. A disk that is nearly full
// has a finer one.
const (
	diskRoundingBytes  = 64 << 20
	finelyRoundedBelow = 1 << 30
	fineRoundingBytes  = 1 << 20
)

// roundDisk rounds bytes of disk down.
func roundDisk(bytes int64) int64 {
	if bytes < finelyRoundedBelow {
		return bytes / fineRoundingBytes * fineRoundingBytes
	}
	return bytes / diskRoundingBytes * diskRoundingBytes
}

// nodeInfo describes the node.
func (a *Agent) nodeInfo() api.NodeInfo {
	facts := a.opts.Machine.Facts()
	free, total, vms := a.opts.Machine.Disk()
	info := api.NodeInfo{
		Arch: facts.Arch, OS: facts.OS, OSVersion: facts.OSVersion, Processor: facts.Processor,
		CPUs: facts.CPUs, MemoryMB: facts.MemoryMB,
		DiskSize: total, FreeDisk: roundDisk(free),
		CacheUsage:   roundDisk(a.opts.Templates.UsedBytes() + vms),
		AgentVersion: a.opts.Version, Driver: a.host.Driver, Hypervisor: a.host.Version,
		Accelerator: a.host.Accelerator, Machine: a.host.Machine, CPUModel: a.host.CPU,
		HostCPU: a.host.HostCPU, Templates: a.opts.Templates.List(),
	}
	info.License, info.Expires = a.licenseInfo()
	if reporter, ok := a.opts.Driver.(hv.ProblemReporter); ok {
		info.Problem = reporter.Problem()
	}
	info.OtherMacOS = a.otherMacOSGuests()
	if a.opts.Devices != nil && a.host.HasCapability(hv.CanUSB) {
		info.USB = a.opts.Devices.Available()
	}
	info.VLANs = a.host.VLANs
	info.PeerAddress, info.PeerKey = a.opts.Peer.Address, a.opts.Peer.Key
	for _, c := range a.host.Capabilities {
		info.Abilities = append(info.Abilities, string(c))
	}
	info.Abilities = append(info.Abilities, farm.AbilityTakeOver)
	if a.opts.LazyTemplates != nil && a.opts.LazyTemplates.PullsLazily() {
		info.Abilities = append(info.Abilities, farm.AbilityLazyPull)
	}
	if a.host.Arch != "" {
		info.Arch = a.host.Arch
	}
	return info
}

// otherMacOSGuests returns how many macOS guests run that the controller does not know as instances: VMs of this
// driver without an instance, and those of other programs.
func (a *Agent) otherMacOSGuests() (count int) {
	if counter, ok := a.opts.Driver.(hv.OtherGuestCounter); ok {
		count = counter.OtherMacOSGuests()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, vm := range a.listedVMs {
		if vm.MacOS && vm.Status == hv.Running && a.instances[vm.ID] == nil {
			count++
		}
	}
	return count
}

// licenseInfo returns the kind and the end of the license that this node runs under: its own license,
// or its hypervisor's when that ends first or is the only one.
func (a *Agent) licenseInfo() (kind, expires string) {
	a.mu.Lock()
	kind, expires = a.hypervisorLicense.Kind, a.hypervisorLicense.Expires
	a.mu.Unlock()
	own := a.opts.License.License()
	if own.Product == "" {
		return kind, expires
	}
	ends := farm.Hypervisor{LicenseExpires: expires}.LicenseExpiresAt()
	switch {
	case own.Expires.IsZero() && ends.IsZero():
		return string(own.Tier), ""
	case own.Expires.IsZero(), !ends.IsZero() && ends.Before(own.Expires):
		return kind, expires
	}
	return string(own.Tier), own.Expires.UTC().Format(time.RFC3339)
}

// inventory returns the node's inventory: every instance of the journal and every VM without an
// instance. It leaves out terminated instances, those of another identity, and the VM of a sanity
// test, which is part of a save.
func (a *Agent) inventory() []api.InventoryItem {
	a.mu.Lock()
	defer a.mu.Unlock()
	vms := make(map[string]hv.VM, len(a.listedVMs))
	for _, vm := range a.listedVMs {
		vms[vm.ID] = vm
	}
	list := make([]api.InventoryItem, 0, len(a.instances))
	for id, in := range a.instances {
		s := in.snapshot()
		vm := vms[id]
		delete(vms, id)
		if in.foreign {
			continue
		}
		if s.Phase != api.PhaseTerminated {
			list = append(list, api.InventoryItem{InstanceID: id, Claim: s.Claim, VMID: vm.ID})
		}
	}
	for id, vm := range vms {
		if a.isForeign(vm.Labels[labelNode]) || isTestVM(vm) {
			continue // as last listed; its removal is in progress or done
		}
		list = append(list,
			api.InventoryItem{InstanceID: vm.Labels[labelInstance], Claim: vm.Labels[labelClaim], VMID: id})
	}
	slices.SortFunc(list, func(x, y api.InventoryItem) int {
		return cmp.Or(strings.Compare(x.InstanceID, y.InstanceID), strings.Compare(x.VMID, y.VMID))
	})
	return list
}

// memoryRoundingMB rounds free memory, which always changes a little.
const memoryRoundingMB = 64

// roundToPercent rounds a share to whole percent, so that a nearly idle host always reports the same value.
func roundToPercent(share float64) float64 { return math.Round(share*100) / 100 }

// diskChangeBytes is the change of disk numbers from which they are reported again: logs change them all the time.
const diskChangeBytes = 1 << 20

// peerRounding is the unit in which bytes that nodes exchange are reported.
const peerRounding = 64 << 10

// isNewUsage reports whether a usage differs from the acknowledged one enough to report it.
func isNewUsage(usage, acked api.Usage) bool {
	free, cached := usage.FreeDisk-acked.FreeDisk, usage.CacheUsage-acked.CacheUsage
	isFirst := acked.CacheUsage == 0 && usage.CacheUsage > 0 // however little it is, there is something
	isSmall := max(free, -free) < diskChangeBytes && max(cached, -cached) < diskChangeBytes
	if usage.HasDisk == acked.HasDisk && !isFirst && isSmall {
		usage.FreeDisk, usage.CacheUsage = acked.FreeDisk, acked.CacheUsage
	}
	return usage != acked
}

// measureUsage measures what the running VMs use, except those of sanity tests, which do not count toward
// the node's capacity.
func (a *Agent) measureUsage(now time.Time) api.Usage {
	a.mu.Lock()
	vms := a.listedVMs
	a.mu.Unlock()
	var u api.Usage
	var pids []int
	for _, vm := range vms {
		if vm.Status != hv.Running || isTestVM(vm) {
			continue
		}
		u.VMs++
		u.VCPUs += vm.CPUs
		u.VRAM += vm.MemoryMB
		if vm.PID > 0 {
			pids = append(pids, vm.PID)
		}
	}
	cpu, ram := a.opts.Machine.Load(now, pids)
	u.CPU, u.RAM = roundToPercent(cpu), roundToPercent(ram)
	u.FreeMem = a.opts.Machine.FreeMemoryMB() / memoryRoundingMB * memoryRoundingMB
	free, _, vmBytes := a.opts.Machine.Disk()
	u.HasDisk, u.FreeDisk, u.CacheUsage = true, free, a.opts.Templates.UsedBytes()+vmBytes
	if a.opts.Peer.Bytes != nil {
		served, fetched := a.opts.Peer.Bytes()
		u.PeerServed, u.PeerFetched = served/peerRounding*peerRounding, fetched/peerRounding*peerRounding
	}
	return u
}

// contentHash identifies a value by its content.
func contentHash(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "" // does not occur for these values; the full one is sent then
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// machine is the host of a real node.
type machine struct {
	templateDir, vmDir string // directories
	facts              host.Facts

	mu          sync.Mutex // guards the fields below
	processLoad host.LoadMeter
	vmBytes     int64 // bytes of the VMs
	vmBytesAt   time.Time
}

// vmBytesInterval is how often the VMs' files are measured.
const vmBytesInterval = 30 * time.Second

// NewMachine returns the host of a real node: templates is the directory of the cache, vms that of
// the driver.
func NewMachine(templates, vms string) Machine {
	return &machine{templateDir: templates, vmDir: vms, facts: host.ReadFacts()}
}

func (m *machine) Facts() host.Facts { return m.facts }

func (m *machine) FreeMemoryMB() int { return host.FreeMemoryMB() }

func (m *machine) Disk() (free, total, vms int64) {
	free, total, err := host.DiskSpace(m.templateDir)
	if err != nil {
		return 0, 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.vmBytesAt) >= vmBytesInterval {
		m.vmBytes, m.vmBytesAt = host.AllocatedBytes(m.vmDir), now
	}
	return free, total, m.vmBytes
}

func (m *machine) VMBytes(id string) int64 {
	if !hv.ValidID(id) {
		return 0
	}
	return host.AllocatedBytes(filepath.Join(m.vmDir, id))
}

func (m *machine) Load(now time.Time, pids []int) (cpu, ram float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.processLoad.Measure(now, pids)
}
