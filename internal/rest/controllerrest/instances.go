package controllerrest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

func (s *server) listVMs(r *rest.Request) (any, error) {
	id := r.Params.String("id")
	page := s.instancePage(r)
	explain := r.Params.OneOf("explain", "0", "1", "false", "true")
	if id == "" && r.URL.Query().Has("id") { // a client with an empty ID must not receive all instances
		r.Params.RecordError("id", "must not be empty")
	}
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if id != "" {
		return s.showInstance(r, id, explain == "1" || explain == "true")
	}
	asOf := s.controller.Instances.ETag() // before the list is read, which may be newer but never older
	passwords := showsVNCPasswords(r)
	if passwords {
		asOf += ".vnc" // the same records yield another list
	}
	size, tag := newElementSize(passwords), s.newListTag(isPartial(page))
	list := s.controller.Instances.ListLong(page, func(l instances.View) {
		size.add(l)
		tag.add(l)
	})
	body := rest.FragmentStream{SizeBytes: size.total(), Fragments: elementStream(list.All(), passwords)}
	return rest.WithETag{Body: body, ETag: s.processEpoch + "." + asOf + "." + tag.tagText()}, nil
}

// listTag is the part of a list's ETag that does not follow from the revision of its records: the messages that
// are in none of them, each with the number of consecutive elements that have it. For a part of all instances
// it includes the IDs: a filter may depend on the time, and the page may have been requested in a body.
type listTag struct {
	sum       maphash.Hash
	partial   bool
	message   string
	runLength int // elements with the message told
	count     int // of all elements
}

func (s *server) newListTag(partial bool) *listTag {
	t := &listTag{partial: partial}
	t.sum.SetSeed(s.hashSeed)
	return t
}

func (t *listTag) add(l instances.View) {
	if t.partial {
		_, _ = t.sum.WriteString(l.ID)
	}
	message := ""
	if l.Message != l.Instance.Message {
		message = l.Message
	}
	if t.runLength++; message != t.message {
		_, _ = t.sum.WriteString(t.message)
		_, _ = fmt.Fprintf(&t.sum, "\x00%d,%d\x00", t.count, t.runLength)
		t.message, t.runLength = message, 0
	}
	t.count++
}

func (t *listTag) tagText() string {
	_, _ = t.sum.WriteString(t.message)
	_, _ = fmt.Fprintf(&t.sum, "\x00%d,%d", t.count, t.runLength)
	return strconv.FormatUint(t.sum.Sum64(), 36)
}

// isPartial reports whether a page is not the whole list.
func isPartial(page instances.Page) bool {
	return page.Match != nil || page.ExternalID != "" || page.After != "" || page.Limit != math.MaxInt
}

// showInstance returns one instance, on request with an explanation of why it is pending.
func (s *server) showInstance(r *rest.Request, id string, explain bool) (any, error) {
	inst, err := s.controller.Instances.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	vm := s.singleInstance(inst, showsVNCPasswords(r))
	if !explain {
		return vm, nil
	}
	why, err := s.controller.Explain(r.Context(), id, s.visibilityOf(r).seesNode)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(why)
	if err != nil {
		return nil, err
	}
	last := len(vm) - 1
	vm[last] = vm[last][:len(vm[last])-1]
	return append(vm, []byte(`,"explain":`), text, []byte("}")), nil
}

// singleInstance encodes an instance for its own request: one that has failed has the numbers of equal failures, and
// one whose startup script runs has its output.
func (s *server) singleInstance(inst instances.View, passwords bool) rest.Fragments {
	output := s.controller.Link.ScriptOutput(inst.Instance)
	if inst.State != farm.Errored && output == nil {
		return vmField(inst, passwords)
	}
	shown := inst.Clone()
	shown.Message = inst.Message
	shape := shapeOf(shown, passwords)
	if output != nil {
		shape.ScriptOutput = &api.ScriptOutput{Stdout: string(output.Stdout), Stderr: string(output.Stderr)}
	}
	if inst.State != farm.Errored {
		return rest.Fragments{encodeJSON(shape)}
	}
	n := s.controller.Instances.EqualFailures(inst.Instance)
	f := shape.Failure
	f.SameTemplate, f.SameTemplateNodes, f.SameNode = n.Template, n.TemplateNodes, n.Node
	return rest.Fragments{encodeJSON(shape)}
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// instanceToAPI converts an instance to its API form.
func instanceToAPI(i *farm.Instance) api.Instance {
	out := api.Instance{
		InstanceID: i.ID, InstanceState: string(i.State), Message: i.Message, Phase: string(i.Phase()),
		Failure: failureToAPI(i.ShownFailure(), i.NodeID), Registry: i.Registry,
		VMID: i.Template.ID, Tag: i.Template.Tag, Version: i.Template.Version, NodeID: i.NodeID,
		TS: i.Updated, CRTime: i.Created, Progress: i.PullProgress, GroupID: i.GroupID,
		Name: i.Name, ExternalID: i.ExternalID, Metadata: i.Metadata, Arch: i.Template.Arch,
		MACAddress: cmp.Or(i.MAC, i.Options.MACAddress), VLAN: i.VLAN(), USBDevice: i.Options.USBDevice,
		TTL: i.TTL, Expires: i.Expires, Owner: i.Owner, Started: i.Started,
	}
	if i.State == farm.Scheduling || i.State == farm.Pulling {
		out.InflightReqID = i.ID
	}
	if i.VM != nil {
		out.VMInfo = vmInfoToAPI(i)
		out.MACAddress = cmp.Or(strings.ToUpper(i.VM.MAC), out.MACAddress) // the guest's address
	}
	if i.Script != nil && i.Options.ScriptMonitoring {
		out.StartupScript = scriptResultToAPI(i.Script)
	}
	return out
}

func vmInfoToAPI(i *farm.Instance) *api.VMInfo {
	vm := i.VM
	out := &api.VMInfo{
		UUID: vm.UUID, Name: vm.Name, Status: string(vm.Status), Version: vm.Version,
		CreationDate: vm.Created, AccessDate: vm.Accessed, StartDate: vm.Started, StopDate: vm.Stopped,
		Timestamp: i.Updated, CPUCores: vm.CPUs, RAM: memoryText(vm.MemoryMB),
		NodeID: i.NodeID, HostIP: vm.HostIP, IP: vm.IP, VNCPort: vm.VNCPort,
	}
	if vm.VNCPort > 0 && vm.HostIP != "" {
		out.VNC = vncURL(vm, nil)
	}
	for _, p := range vm.Ports {
		out.PortForwarding = append(out.PortForwarding,
			api.Port{GuestPort: p.GuestPort, HostPort: p.HostPort, Protocol: cmp.Or(p.Protocol, "tcp"), Name: p.Name})
	}
	return out
}

// failureToAPI converts a failure on a node, "" for none, to its API form; nil stays nil.
func failureToAPI(f *farm.Failure, node string) *api.InstanceFailure {
	if f == nil {
		return nil
	}
	info := f.Class.Info()
	return &api.InstanceFailure{
		Class: string(info.Class), Step: string(f.Step), Summary: info.Summary, Remedy: info.Remedy, AtNode: node,
	}
}

// memoryText formats a size like templates do: 4G, 512M.
func memoryText(mb int) string {
	if mb > 0 && mb%1024 == 0 {
		return fmt.Sprintf("%dG", mb/1024)
	}
	return fmt.Sprintf("%dM", mb)
}

func scriptResultToAPI(s *farm.ScriptResult) *api.ScriptResult {
	return &api.ScriptResult{
		ReturnCode: s.ExitCode, Errors: s.Errors, DidTimeout: s.TimedOut, Stdout: string(s.Stdout),
		Stderr: string(s.Stderr),
	}
}

func (s *server) updateVM(r *rest.Request) (any, error) {
	p := r.Params
	id := p.Required("id")
	up := instances.Update{Metadata: metadataParam(p)}
	if p.Has("name") {
		name := p.Text("name", maxName)
		up.Name = &name
	}
	if p.Has("external_id") {
		external := p.Text("external_id", maxExternalID)
		up.ExternalID = &external
	}
	if ttl := ttlParam(p); p.Has("ttl") {
		up.TTL = &ttl
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.Instances.Update(r.Context(), id, up)
}

func (s *server) terminateVM(r *rest.Request) (any, error) {
	id := r.Params.Required("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.Instances.Terminate(r.Context(), id)
}

// Limits of the metadata of an instance.
const (
	maxMetadata      = 64 // keys
	maxMetadataKey   = 255
	maxMetadataValue = 4096
	maxMetadataSize  = 64 << 10 // of the whole object as JSON: it is part of a record
)

// metadataParam reads the object of strings, integers and booleans; nil when not given.
func metadataParam(p *rest.Params) map[string]any {
	object := p.Object("metadata")
	if object == nil {
		return nil
	}
	keys := object.Keys()
	if len(keys) > maxMetadata {
		p.RecordError("metadata", "must have at most %d keys", maxMetadata)
		return nil
	}
	values := make(map[string]any, len(keys))
	for _, key := range keys {
		value := object.ScalarValue(key)
		if text, ok := value.(string); len(key) > maxMetadataKey || (ok && len(text) > maxMetadataValue) {
			p.RecordError("metadata", "keys must have at most %d bytes and values %d", maxMetadataKey, maxMetadataValue)
		}
		values[key] = value
	}
	if object.Err() != nil {
		p.RecordError("metadata", "values must be strings, integers or booleans")
	}
	if raw, err := json.Marshal(values); err != nil || len(raw) > maxMetadataSize {
		p.RecordError("metadata", "must have at most %d bytes in all", maxMetadataSize)
	}
	return values
}
