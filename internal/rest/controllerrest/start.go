package controllerrest

import (
	"cmp"
	"encoding/base64"
	"net/netip"
	"strings"

	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// Limits of the texts of a start request, in bytes.
const (
	maxName         = 255
	maxExternalID   = 4096
	maxTag          = 1024
	maxNameTemplate = 512
	maxScript       = 256 << 10 // decoded; a record with it must fit a transaction of the store
	maxScriptTime   = 24 * 60 * 60
	maxPorts        = 64
)

func (s *server) startVMs(r *rest.Request) (any, error) {
	caller := rest.CallerOf(r.Context())
	req, err := s.startRequest(r.Params, caller)
	if err != nil {
		return nil, err
	}
	req.Owner, req.Caller = caller.Owner(), rest.CallerName(r.Request)
	if pin := req.Options.PinnedNode; pin != "" {
		if err := caller.RequireGroupRight(req.Group, farm.ResourceNode, pin, rightStart); err != nil {
			return nil, controller.NodeNotFound(pin, err)
		}
	}
	return s.controller.Start(r.Context(), req)
}

// startRequest reads the parameters of a start. It validates types and ranges first, so that an error always
// names the wrong parameter, then refuses unsupported parameters.
func (s *server) startRequest(p *rest.Params, caller rest.Caller) (controller.StartRequest, error) {
	req := controller.StartRequest{
		TemplateID: p.Required("vmid"),
		Tag:        p.Text("tag", maxTag),
		Count:      p.Int("count", 1, 1, controller.MaxCount),
		Name:       p.Text("name", maxName),
		ExternalID: p.Text("external_id", maxExternalID),
		Metadata:   metadataParam(p),
		GroupID:    p.String("group_id"),
		TTL:        ttlParam(p),
		Options: farm.StartOptions{
			Priority:     priorityParam(p),
			PinnedNode:   p.String("node_id"),
			NameTemplate: nameTemplateParam(p, s.vmNamePrefix),
		},
	}
	if p.Has("version") {
		number := p.Int("version", 0, 0, 1<<30)
		req.Version = &number
	}
	readScript(p, &req.Options)
	req.Options.Ports, req.Options.PortOverride = portsParam(p)
	readMachine(p, &req.Options)
	if req.Options.HardwareUUID != "" && req.Count > 1 {
		p.RecordError("hw_uuid", "requires count 1: no two VMs may have the same value")
	}
	if req.Options.MACAddress != "" && req.Count > 1 {
		p.RecordError("mac_address", "requires count 1: no two VMs may have the same value")
	}
	if err := p.Err(); err != nil {
		return req, err
	}
	var err error
	if req.Group, err = actingGroup(p, caller); err != nil {
		return req, err
	}
	return req, refuseUnsupported(p)
}

// actingGroup reads the permission group for which a request is made, and refuses one where rights on single
// resources do not apply.
func actingGroup(p *rest.Params, caller rest.Caller) (string, error) {
	group, err := caller.ActingGroup(p)
	if err == nil && group == "" && p.Has("group") {
		err = farm.Refused("group is only available where permissions on single resources count" +
			" (SVC_ENABLE_RESOURCE_MANAGEMENT); leave it out")
	}
	return group, err
}

// priorityParam reads the priority; 0 means that it is not given.
func priorityParam(p *rest.Params) int {
	return p.IntOrZero("priority", farm.DefaultPriority, farm.MinPriority, farm.MaxPriority)
}

// longestNameValues replaces the variables of a name template by their longest usual values. Names of templates and
// nodes may be longer; few are.
var longestNameValues = strings.NewReplacer(
	"$template_name", strings.Repeat("x", 64), "$template_id", strings.Repeat("x", 36),
	"$instance_id", strings.Repeat("x", 36), "$node_id", strings.Repeat("x", 36),
	"$node_name", strings.Repeat("x", 64), "$ts", strings.Repeat("x", 19),
)

// nameTemplateParam reads the template of the VM's name, which is also used in file names.
func nameTemplateParam(p *rest.Params, prefix string) string {
	text := p.Text("name_template", maxNameTemplate)
	if text == "" {
		return ""
	}
	if n := len(prefix) + len(longestNameValues.Replace(text)); n > maxName {
		p.RecordError("name_template", "results in VM names of up to %d bytes, including the prefix: want at most %d",
			n, maxName)
	}
	return text
}

// readScript reads the startup script and its parameters. Without a script, parameters that need monitoring are
// refused unless they have their default value.
func readScript(p *rest.Params, o *farm.StartOptions) {
	o.Script = decodeScript(p, "startup_script")
	o.ScriptCondition = p.Int("startup_script_condition", 0, 0, 1)
	o.ScriptMonitoring = p.Bool("script_monitoring", false)
	o.ScriptTimeout = p.Int("script_timeout", defaultScriptTimeout, 1, maxScriptTime)
	o.ScriptOnFailure = farm.ScriptFailureAction(p.Int("script_fail_handler", int(farm.StopVM), int(farm.StopVM),
		int(farm.DeleteVM)))
	if !o.ScriptMonitoring {
		if o.ScriptTimeout != defaultScriptTimeout {
			p.RecordError("script_timeout", "requires script_monitoring true")
		}
		if o.ScriptOnFailure != farm.StopVM {
			p.RecordError("script_fail_handler", "requires script_monitoring true")
		}
		return
	}
	if len(o.Script) == 0 {
		p.RecordError("script_monitoring", "requires startup_script")
	}
}

const defaultScriptTimeout = 90 // seconds

// decodeScript reads the text of a startup script.
func decodeScript(p *rest.Params, name string) []byte {
	raw, err := decodeBase64(p.String(name))
	switch {
	case err != nil:
		p.RecordError(name, "must be base64 text")
	case len(raw) > maxScript:
		p.RecordError(name, "must have at most %d bytes when decoded", maxScript)
	}
	return raw
}

// decodeBase64 decodes a base64 text of either alphabet, padded or not. The error is that of the standard alphabet.
func decodeBase64(text string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		return raw, nil
	}
	liberal := strings.Map(func(r rune) rune {
		switch r {
		case '\n', '\r', ' ', '\t', '=':
			return -1
		case '-':
			return '+'
		case '_':
			return '/'
		}
		return r
	}, text)
	if raw, again := base64.RawStdEncoding.DecodeString(liberal); again == nil {
		return raw, nil
	}
	return nil, err
}

// portsParam reads the rules that replace those of the template. An empty array is also an override: no rules.
func portsParam(p *rest.Params) (rules []farm.Port, override bool) {
	if !p.Has("port_forwarding_override") {
		return nil, false
	}
	items := p.Objects("port_forwarding_override")
	if len(items) > maxPorts {
		p.RecordError("port_forwarding_override", "must have at most %d rules", maxPorts)
		return nil, false
	}
	taken := map[int]bool{}
	for _, item := range items {
		rule := portParam(item)
		if err := item.Err(); err != nil {
			p.RecordError("port_forwarding_override", "%s", err)
		}
		if rule.HostPort > 0 && taken[rule.HostPort] {
			p.RecordError("port_forwarding_override", "host_port %d occurs twice", rule.HostPort)
		}
		taken[rule.HostPort] = true
		rules = append(rules, rule)
	}
	return rules, true
}

func portParam(item *rest.Params) farm.Port {
	rule := farm.Port{
		Name: item.Text("name", maxName), Protocol: "tcp",
		GuestPort: item.Int("guest_port", 0, 1, 65535), HostPort: item.Int("host_port", 0, 0, 65535),
		HostIP: item.String("host_ip"),
	}
	if rule.Name = cmp.Or(rule.Name, item.Text("rule_name", maxName)); rule.Name == "" {
		item.RecordError("name", "is required")
	}
	if !item.Has("guest_port") {
		item.RecordError("guest_port", "is required")
	}
	if item.OneOf("protocol", "tcp", "TCP"); rule.HostIP != "" {
		if ip, err := netip.ParseAddr(rule.HostIP); err != nil || !ip.Is4() {
			item.RecordError("host_ip", "must be an IPv4 address")
		}
	}
	return rule
}

// unsupportedParams are the parameters that the controller does not support, with the reasons.
var unsupportedParams = []struct{ name, sentence string }{
	{"hvapic", "is an option of Intel Macs that the nodes' hypervisor does not have"},
	{"csr_active_config", "is an option of Intel Macs that the nodes' hypervisor does not have"},
}

// refuseUnsupported rejects, by name, unsupported parameters that would otherwise be ignored.
func refuseUnsupported(p *rest.Params) error {
	for _, r := range unsupportedParams {
		if p.Has(r.name) {
			return farm.Refused("%s %s; leave it out", r.name, r.sentence)
		}
	}
	return nil
}
