package nodeinput

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"unicode"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/farm"
)

// Join bounds a request to join.
func Join(r *api.JoinRequest) error {
	switch {
	case r.Name == "" || len(r.Name) > MaxName || strings.ContainsFunc(r.Name, unprintable):
		return farm.Invalid("name", "must be printable text of 1 to %d bytes", MaxName)
	case r.Capacity < 0 || r.Capacity > MaxCapacity:
		return farm.Invalid("capacity", "must be between 0 and %d", MaxCapacity)
	case r.Arch != "" && !knownArch(r.Arch):
		return farm.Invalid("arch", "must be amd64 or arm64")
	}
	for _, err := range []error{
		protocol(r.Protocol), host(r.Host), tooLong("groups", r.Groups, MaxGroups), tooLong("kept", r.Kept, maxKept),
		refuse(name{"node_id", r.NodeID, MaxID}),
		refuse(named("groups", r.Groups)...), refuse(named("kept", r.Kept)...),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// protocols are the versions of the node API that this controller supports.
var protocols = farm.SupportedVersions{
	Subject: "Node protocol", Oldest: api.OldestLinkProtocol, Newest: api.LinkProtocol, Reader: "this controller",
	IfNewer: "update the controller, or install the buildnode of the controller's release on the node",
	IfOlder: "update buildnode on the node to the controller's release",
}

// protocol returns an error for a version of the node API that this controller does not support.
func protocol(version int) error { return protocols.Check(version) }

func knownArch(arch string) bool { return arch == "amd64" || arch == "arm64" }

// host returns an error for a text that cannot be an address or a host name.
func host(h string) error {
	if strings.ContainsFunc(h, unicode.IsSpace) {
		return farm.Invalid("host", "must not contain spaces")
	}
	return refuse(name{"host", h, MaxName})
}

func named(field string, values []string) (list []name) {
	for i, v := range values {
		list = append(list, name{fmt.Sprintf("%s[%d]", field, i), v, MaxName})
	}
	return list
}

// Pass bounds a request for a registry token.
func Pass(r *api.RegistryTokenRequest) error {
	if err := protocol(r.Protocol); err != nil {
		return err
	}
	p := api.TokenPurpose{}
	if r.Purpose != nil {
		p = *r.Purpose
	}
	return refuse(name{"node_id", r.NodeID, MaxID},
		name{"purpose.pull", p.Pull, MaxName}, name{"purpose.save", p.Save, MaxID}, name{"purpose.logs", p.Logs, MaxID})
}

// Peers bounds a request for peers.
func Peers(r *api.PeersRequest) error {
	if err := protocol(r.Protocol); err != nil {
		return err
	}
	names := []name{{"node_id", r.NodeID, MaxID}, {"content_id", r.ContentID, MaxName}}
	for _, id := range r.Excluded[:min(len(r.Excluded), maxExcluded)] {
		names = append(names, name{"excluded", id, MaxID})
	}
	if r.ContentID == "" {
		return farm.Invalid("content_id", "is required")
	}
	return cmp.Or(tooLong("excluded", r.Excluded, maxExcluded), refuse(names...))
}

// CloudProof bounds a request for the proof that a controller belongs to the cloud.
func CloudProof(r *api.CloudProofRequest) error {
	if err := protocol(r.Protocol); err != nil {
		return err
	}
	if url, err := cloudkey.CanonicalURL(r.URL); err != nil || url != r.URL {
		return farm.Invalid("url", "must be the canonical form of a URL of at most %d bytes", cloudkey.MaxURLBytes)
	}
	if len(r.Nonce) != 2*sha256.Size {
		return farm.Invalid("nonce", "must have %d hexadecimal digits", 2*sha256.Size)
	}
	return refuse(name{"node_id", r.NodeID, MaxID}, name{"nonce", r.Nonce, MaxID}, name{"mac", r.MAC, MaxID})
}

// Poll bounds a poll.
func Poll(r *api.PollRequest) error {
	switch {
	case r.BootID == "":
		return farm.Invalid("boot_id", "must have 1 to %d bytes", MaxID)
	case r.Info != nil && !knownArch(r.Info.Arch):
		return farm.Invalid("info.arch", "must be amd64 or arm64")
	}
	for _, err := range []error{
		protocol(r.Protocol), tooLong("details", r.Details, MaxHeld),
		tooLong("held", r.Held, MaxHeld), tooLong("acks", r.Acks, MaxHeld),
		host(r.Host),
		refuse(
			name{"node_id", r.NodeID, MaxID}, name{"boot_id", r.BootID, MaxID},
			name{"info_hash", r.InfoHash, MaxID}, name{"held_hash", r.HeldHash, MaxID},
		),
	} {
		if err != nil {
			return err
		}
	}
	clamp(maxBytes, &r.Pulled)
	if u := r.Usage; u != nil {
		clampShare(&u.CPU, &u.RAM)
		clamp(MaxCores, &u.VMs, &u.VCPUs)
		clamp(MaxMemoryMB, &u.VRAM, &u.FreeMem)
		clamp(maxBytes, &u.FreeDisk, &u.CacheUsage, &u.PeerServed, &u.PeerFetched)
	}
	if err := diskFills(r.Fills); err != nil {
		return err
	}
	if r.Info != nil {
		info(r.Info)
	}
	return pollLists(r)
}

// diskFills bounds what a node reports of disks that are being filled.
func diskFills(fills map[string]api.DiskFill) error {
	if len(fills) > maxFills {
		return farm.Invalid("fills", "must have at most %d entries", maxFills)
	}
	for id, f := range fills {
		if err := refuse(name{"fills", id, MaxID}); err != nil {
			return err
		}
		clampShare(&f.Fraction)
		clamp(maxBytes, &f.Bytes, &f.Total, &f.Rate)
		clamp(maxSecond, &f.Waiting)
		cut(MaxName, &f.Problem)
		fills[id] = f
	}
	return nil
}

// pollLists bounds the lists of a poll, and the update.
func pollLists(r *api.PollRequest) error {
	for i := range r.Held {
		h := &r.Held[i]
		if err := refuse(
			name{"held.instance_id", h.InstanceID, MaxID}, name{"held.claim", h.Claim, MaxID},
			name{"held.vm_id", h.VMID, MaxID},
		); err != nil {
			return err
		}
	}
	for i := range r.Acks {
		a := &r.Acks[i]
		if err := refuse(
			name{"acks.instance_id", a.InstanceID, MaxID}, name{"acks.claim", a.Claim, MaxID},
			name{"acks.task", a.Task, MaxID}, name{"acks.kind", string(a.Kind), MaxID},
		); err != nil {
			return err
		}
	}
	for i := range r.Details {
		if err := detail(&r.Details[i]); err != nil {
			return err
		}
	}
	if u := r.Update; u != nil {
		stage := string(u.Stage)
		cut(MaxID, &stage)
		cut(MaxField, &u.Message)
		clampShare(&u.Progress)
		u.Stage = api.UpdateStage(stage)
		return refuse(name{"update.id", u.ID, MaxID})
	}
	return nil
}

// info bounds the description of a node.
func info(in *api.NodeInfo) {
	cut(MaxName, &in.OS, &in.AgentVersion, &in.License, &in.Expires)
	if _, port, err := net.SplitHostPort(in.PeerAddress); err != nil || port == "" || !isDigest(in.PeerKey) ||
		refuse(name{"peer_address", in.PeerAddress, MaxName}) != nil {
		in.PeerAddress, in.PeerKey = "", ""
	}
	cut(MaxField, &in.Driver, &in.Hypervisor, &in.Accelerator, &in.Machine, &in.CPUModel, &in.HostCPU,
		&in.OSVersion, &in.Processor, &in.Problem)
	clamp(MaxCores, &in.CPUs, &in.OtherMacOS)
	clamp(MaxMemoryMB, &in.MemoryMB)
	clamp(maxBytes, &in.DiskSize, &in.FreeDisk, &in.CacheUsage)

	for i := range in.Templates[:min(len(in.Templates), maxCached)] {
		t := &in.Templates[i]
		cut(MaxName, &t.ID, &t.Name, &t.ContentID)
		cut(MaxField, &t.Tag)
		clamp(maxBytes, &t.Size)
	}
	in.Templates = head(in.Templates, maxCached, func(t *api.NodeTemplate) int {
		return len(t.ID) + len(t.Name) + len(t.Tag) + len(t.ContentID)
	})

	for i := range in.USB[:min(len(in.USB), maxCached)] {
		cut(MaxName, &in.USB[i].Name, &in.USB[i].Location)
	}
	in.USB = head(in.USB, maxCached, func(u *api.USBDevice) int { return len(u.Name) + len(u.Location) })

	in.Abilities = in.Abilities[:min(len(in.Abilities), maxAbilities)]
	for i := range in.Abilities {
		cut(MaxName, &in.Abilities[i])
	}
	in.VLANs = in.VLANs[:min(len(in.VLANs), farm.MaxVLAN)]
	for i := range in.VLANs {
		clamp(farm.MaxVLAN+1, &in.VLANs[i]) // invalid ids are left out where they are stored
	}
}

// isDigest reports whether a text is a SHA-256 in lower-case hexadecimal digits.
func isDigest(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && text == strings.ToLower(text)
}

// detail bounds the details of a VM without a record.
func detail(d *api.InventoryDetail) error {
	if err := refuse(name{"details.id", d.ID, MaxID}); err != nil {
		return err
	}
	cut(MaxName, &d.ContentID)
	if d.Start != nil {
		order(d.Start)
	}
	return status("details.status.", &d.Status)
}

// order bounds a start order as a node returns it.
func order(o *api.StartOrder) {
	cut(MaxName, &o.TemplateID, &o.TemplateName, &o.ContentID, &o.VMName, &o.TakesOver)
	cut(MaxField, &o.Tag, &o.Registry)
	clamp(maxCount, &o.Version)
	clamp(maxSecond, &o.StartTimeout)
	o.Ports = ports(o.Ports)
	if s := o.Script; s != nil {
		s.Text = nil // a genuine node does not return it
		clamp(maxSecond, &s.Timeout)
		clamp(int(farm.DeleteVM), &s.OnFailure)
	}
	if m := o.Machine; m != nil {
		cut(MaxName, &m.MAC, &m.HardwareUUID, &m.Serial, &m.Video, &m.Network, &m.NetworkLocal, &m.USB, &m.USBDevice)
		m.VNCPassword = "" // likewise
		clamp(MaxCores, &m.CPUs)
		clamp(MaxMemoryMB, &m.MemoryMB)
		clamp(maxBytes, &m.DiskBytes)
		clamp(farm.MaxVLAN+1, &m.VLAN)
	}
}

func ports(list []api.NodePortRule) []api.NodePortRule {
	list = list[:min(len(list), MaxPorts)]
	for i := range list {
		cut(MaxName, &list[i].Name, &list[i].HostIP, &list[i].Protocol)
		clamp(maxPort, &list[i].GuestPort, &list[i].HostPort)
	}
	return list
}
