package portal

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

func (p *portal) startActions() []action {
	return []action{{
		pattern: "/instances/start", templateName: "start", title: "Start instance", buildForm: askStart,
		perform: doStart,
	}}
}

// startField is a field of the form that starts instances, called as the API calls it.
type startField struct {
	Section           string // that it is the first under; "": it continues
	Name, Label, Hint string
	Kind              string // number, area, choice; "": text
	Choices           []choice
	MaxValue          int // of a number
	setValue          func(r *client.StartRequest, text string) error

	Value, FieldError string
}

// choice is a value that a field may have.
type choice struct{ Value, Name string }

// textField sets a text.
func textField(of func(r *client.StartRequest) *string) func(*client.StartRequest, string) error {
	return func(r *client.StartRequest, text string) error {
		*of(r) = text
		return nil
	}
}

var errNotInteger = errors.New("must be an integer")

// numberField sets an integer.
func numberField(of func(r *client.StartRequest) *int) func(*client.StartRequest, string) error {
	return func(r *client.StartRequest, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil {
			return errNotInteger
		}
		*of(r) = n
		return nil
	}
}

type startRequest = client.StartRequest

// firstFields are the fields that nearly every start sets, the others those that few set.
var firstFields = []startField{
	{
		Name: "tag", Label: "Tag", Hint: "Empty: the latest.",
		setValue: textField(func(r *startRequest) *string { return &r.Tag }),
	},
	{
		Name: "count", Label: "Count", Kind: "number", MaxValue: 1000,
		setValue: numberField(func(r *startRequest) *int { return &r.Count }),
	},
	{Name: "name", Label: "Name", setValue: textField(func(r *startRequest) *string { return &r.Name })},
}

var startFields = []startField{
	{
		Section: "Placement and lifetime", Name: "version", Label: "Version", Hint: "A number instead of the tag.",
		setValue: func(r *startRequest, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil {
				return errNotInteger
			}
			r.Version = &n
			return nil
		},
	},
	{
		Name: "external_id", Label: "External ID", Hint: "Identifier in your own systems.",
		setValue: textField(func(r *startRequest) *string { return &r.ExternalID }),
	},
	{Name: "metadata", Label: "Metadata", Kind: "area", Hint: "One per line: key=value.", setValue: setMetadata},
	{
		Name: "node_id", Label: "Node", Kind: "choice",
		setValue: textField(func(r *startRequest) *string { return &r.NodeID }),
	},
	{
		Name: "group_id", Label: "Group of nodes", Kind: "choice",
		setValue: textField(func(r *startRequest) *string { return &r.GroupID }),
	},
	{
		Name: "priority", Label: "Priority", Kind: "number", MaxValue: 10000,
		Hint:     "1 to 10000, lower is sooner. Empty: 1000.",
		setValue: numberField(func(r *startRequest) *int { return &r.Priority }),
	},
	{
		Name: "ttl", Label: "TTL", Hint: "A duration such as 90s or 2h. Empty: no limit.",
		setValue: func(r *startRequest, text string) error {
			d, err := time.ParseDuration(text)
			if err != nil {
				return errors.New("must be a time such as 90s or 2h")
			}
			r.TTL = client.Duration(d)
			return nil
		},
	},
	{
		Section: "Startup script", Name: "startup_script", Label: "Startup script", Kind: "area",
		setValue: func(r *startRequest, text string) error {
			r.StartupScript = []byte(strings.ReplaceAll(text, "\r\n", "\n"))
			return nil
		},
	},
	{Name: "startup_script_condition", Label: "Runs", Kind: "choice", Choices: []choice{
		{"", "once the network is up"}, {"1", "as soon as it boots"},
	}, setValue: numberField(func(r *startRequest) *int { return (*int)(&r.ScriptCondition) })},
	{Name: "script_monitoring", Label: "Monitoring", Kind: "choice", Choices: []choice{
		{"", "ignore the result"}, {"true", "wait for the result and keep it"},
	}, setValue: func(r *startRequest, text string) error {
		r.ScriptMonitoring = text == "true"
		return nil
	}},
	{
		Name: "script_timeout", Label: "Script timeout", Kind: "number", MaxValue: 86400,
		Hint:     "In seconds, if monitored. Empty: 90.",
		setValue: numberField(func(r *startRequest) *int { return &r.ScriptTimeout }),
	},
	{Name: "script_fail_handler", Label: "On failure", Kind: "choice", Choices: []choice{
		{"", "stop the VM"}, {"1", "keep the VM"}, {"2", "delete the VM"},
	}, setValue: numberField(func(r *startRequest) *int { return (*int)(&r.ScriptFailHandler) })},
	{
		Section: "Machine", Name: "vcpu", Label: "Virtual CPUs", Kind: "number", MaxValue: 4096,
		Hint: "Empty: value of the template.", setValue: numberField(func(r *startRequest) *int { return &r.VCPU }),
	},
	{
		Name: "vram", Label: "Memory (MiB)", Kind: "number", MaxValue: 1 <<
			24, Hint: "Empty: value of the template.",
		setValue: numberField(func(r *startRequest) *int { return &r.VRAM }),
	},
	{
		Name: "disk", Label: "Disk", Hint: "A size such as 80G, to grow the disk.",
		setValue: func(r *startRequest, text string) error {
			r.Disk = &client.Disk{Size: text}
			return nil
		},
	},
	{
		Name: "skip_container_resize", Label: "File system", Kind: "choice",
		Choices: []choice{{"", "grow with the disk"}, {"true", "keep the size"}},
		setValue: func(r *startRequest, _ string) error {
			if r.Disk == nil {
				return errors.New("requires a new size of the disk")
			}
			r.Disk.SkipResize = true
			return nil
		},
	},
	{
		Name: "video_controller", Label: "Video controller", Kind: "choice", Choices: newChoices("fbuf",
			"pg"), Hint: "fbuf is plain VGA, pg a paravirtual one.",
		setValue: textField(func(r *startRequest) *string { return &r.VideoController }),
	},
	{
		Name: "hw_serial", Label: "Serial number", Hint: "Serial number that the firmware reports.",
		setValue: textField(func(r *startRequest) *string { return &r.HardwareSerial }),
	},
	{
		Name: "hw_uuid", Label: "Hardware UUID", Hint: "Hardware UUID; for one instance at a time.",
		setValue: textField(func(r *startRequest) *string { return &r.HardwareUUID }),
	},
	{Name: "hvapic", Label: "HVAPIC", Kind: "choice", Choices: newChoices("forceOn",
		"forceOff"), Hint: "Intel Macs only.", setValue: textField(func(r *startRequest) *string { return &r.HVAPIC })},
	{
		Name: "csr_active_config", Label: "CSR active config", Kind: "choice", Choices: newChoices("forceOn"),
		Hint: "Intel Macs only.", setValue: textField(func(r *startRequest) *string { return &r.CSRActiveConfig }),
	},
	{
		Name: "usb_device", Label: "USB device", Hint: "A claim name or a location.",
		setValue: textField(func(r *startRequest) *string { return &r.USBDevice }),
	},
	{
		Name: "name_template", Label: "Name of the VM",
		Hint:     "May hold $template_name, $template_id, $instance_id, $node_name, $node_id, $ts.",
		setValue: textField(func(r *startRequest) *string { return &r.NameTemplate }),
	},
	{
		Name: "vnc_password", Label: "VNC password", Hint: "At most 8 characters.",
		setValue: textField(func(r *startRequest) *string { return &r.VNCPassword }),
	},
	{Section: "Network", Name: "network_mode", Label: "Network", Kind: "choice", Choices: newChoices("shared", "nat",
		"host", "bridge",
		"disconnected"), setValue: textField(func(r *startRequest) *string { return &r.NetworkMode })},
	{Name: "network_local", Label: "Local network isolation", Kind: "choice", Choices: newChoices("forceOn",
		"forceOff"), setValue: textField(func(r *startRequest) *string { return &r.NetworkLocal })},
	{Name: "vlan_tag", Label: "VLAN", setValue: textField(func(r *startRequest) *string { return &r.VLANTag })},
	{
		Name: "mac_address", Label: "MAC address",
		setValue: textField(func(r *startRequest) *string { return &r.MACAddress }),
	},
	{
		Name: "port_forwarding_override", Label: "Ports", Kind: "area",
		Hint: "One per line, replacing those of the template: name, guest port, host port, host address (the last " +
			"two are optional). none: no ports.", setValue: setPorts,
	},
	{
		Section: "Act as", Name: "group", Label: "Permission group",
		Hint:     "The permission group to act as. Required with resource rights on nodes, rejected otherwise.",
		setValue: textField(func(r *startRequest) *string { return &r.Group }),
	},
}

func newChoices(values ...string) []choice {
	all := []choice{{"", "as the template says"}}
	for _, value := range values {
		all = append(all, choice{value, value})
	}
	return all
}

func setMetadata(r *startRequest, text string) error {
	r.Metadata = map[string]any{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(key) == "" {
			return errors.New("each line must be key=value")
		}
		r.Metadata[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return nil
}

func setPorts(r *startRequest, text string) error {
	r.Ports = []client.PortRule{}
	if text == "none" {
		return nil
	}
	for line := range strings.Lines(text) {
		words := strings.FieldsFunc(line,
			func(c rune) bool { return c == ' ' || c == ',' || c == '\t' || c == '\r' || c == '\n' })
		if len(words) == 0 {
			continue
		}
		rule, err := parsePortRule(words)
		if err != nil {
			return err
		}
		r.Ports = append(r.Ports, rule)
	}
	return nil
}

// parsePortRule reads a rule: a name, the port in the VM, the node's port, the node's address.
func parsePortRule(words []string) (rule client.PortRule, err error) {
	if len(words) < 2 || len(words) > 4 {
		return rule,
			errors.New("each line must have a name, a guest port, and optionally a host port and a host address")
	}
	rule.Name = words[0]
	if n := len(words) - 1; n > 1 && strings.Contains(words[n], ".") {
		rule.HostIP, words = words[n], words[:n]
	}
	for i, word := range words[1:] {
		n, err := strconv.Atoi(word)
		switch {
		case err != nil || i > 1:
			return rule, errors.New("invalid port: want a number from 0 to 65535")
		case i == 0:
			rule.GuestPort = n
		default:
			rule.HostPort = n
		}
	}
	return rule, nil
}

// startForm is the form that starts instances.
type startForm struct {
	TemplateID            string
	TemplateError         string
	Templates             []api.Template
	TemplatesHiddenReason string // they are not listed
	Tags                  []string
	MainFields, More      []startField
	MoreOpen              bool // a field in More is set
	StartError            string
	Key                   string
	CurlCommand           string
}

// readStartForm reads the form: the request that it makes, and the form as it was filled in.
func readStartForm(v *visit) (client.StartRequest, startForm) {
	r := client.StartRequest{TemplateID: strings.TrimSpace(v.query.Get("vmid"))}
	f := startForm{
		TemplateID: r.TemplateID, MainFields: slices.Clone(firstFields), More: slices.Clone(startFields),
		Key: v.query.Get("key"),
	}
	if f.Key == "" {
		f.Key = client.NewKey()
	}
	for _, fields := range [][]startField{f.MainFields, f.More} {
		for i := range fields {
			field := &fields[i]
			if field.Value = strings.TrimSpace(v.query.Get(field.Name)); field.Value == "" {
				continue
			}
			if err := field.setValue(&r, field.Value); err != nil {
				field.FieldError = err.Error()
			}
		}
	}
	f.CurlCommand = curlCommand(v, "POST", "/api/v1/vm", jsonText(r))
	return r, f
}

// addChoices adds what can be chosen. What the visitor may not see is typed instead.
func (f *startForm) addChoices(v *visit) {
	var err error
	f.Templates, err = v.Templates(v, client.ListOptions{})
	f.TemplatesHiddenReason = notShownReason(err)
	if f.TemplateID != "" {
		if t, err := v.Template(v, f.TemplateID); err == nil {
			for _, version := range slices.Backward(t.Versions) {
				f.Tags = append(f.Tags, version.Tag)
			}
		}
	}
	nodes := []choice{{"", "any"}}
	page, err := v.NodePage(v, client.PageOptions{Sort: "name", Limit: maxNodeChoices})
	for _, n := range page.Nodes {
		nodes = append(nodes, choice{n.NodeID, n.NodeName + " (" + n.State + ")"})
	}
	typed := err != nil || page.Total > len(page.Nodes) // a node is named by its id
	groups := []choice{{"", "any"}}
	if list, err := v.Groups(v, client.ListOptions{}); err == nil {
		for _, g := range list {
			groups = append(groups, choice{g.ID, g.Name})
		}
	}
	f.addActingGroup(v.canDo())
	for i := range f.More {
		field := &f.More[i]
		switch field.Name {
		case "node_id":
			if field.Choices = includeChoice(nodes, field.Value); typed {
				field.Kind, field.Hint = "", "Node ID. Empty: any."
			}
		case "group_id":
			field.Choices = includeChoice(groups, field.Value)
		}
		f.MoreOpen = f.MoreOpen || field.Value != "" || field.FieldError != ""
	}
}

// addActingGroup adds the permission group to the first fields where one has to be named, and removes the
// node group, which applies elsewhere.
func (f *startForm) addActingGroup(m *capabilities) {
	if !m.managed() {
		return
	}
	at := func(name string) int {
		return slices.IndexFunc(f.More, func(x startField) bool { return x.Name == name })
	}
	group := f.More[at("group")]
	group.Section, group.Hint = "", "The permission group to act as."
	if all := m.actingGroups(); len(all) > 0 {
		group.Kind = "choice"
		for _, name := range all {
			group.Choices = append(group.Choices, choice{name, name})
		}
		group.Choices = includeChoice(group.Choices, group.Value)
	}
	f.MainFields = append(f.MainFields, group)
	f.More = slices.Delete(f.More, at("group"), at("group")+1)
	f.More = slices.Delete(f.More, at("group_id"), at("group_id")+1)
}

// includeChoice returns choices that include the chosen one.
func includeChoice(all []choice, chosen string) []choice {
	if slices.ContainsFunc(all, func(c choice) bool { return c.Value == chosen }) {
		return all
	}
	if chosen == "" {
		return append([]choice{{"", "choose one"}}, all...)
	}
	return append(all, choice{chosen, chosen})
}

func askStart(v *visit) (any, error) {
	_, f := readStartForm(v)
	f.addChoices(v)
	return f, nil
}

// fieldErrorPattern matches the API's messages about a field.
var fieldErrorPattern = regexp.MustCompile(`^([a-z_]+)(?:(?:\[\d+\][a-z_.]*)?:)? (.+)$`)

// setError assigns the API's error about a request to the field that it concerns.
func (f *startForm) setError(message string) {
	m := fieldErrorPattern.FindStringSubmatch(message)
	for _, fields := range [][]startField{f.MainFields, f.More} {
		for i := range fields {
			if m != nil && fields[i].Name == m[1] {
				fields[i].FieldError = m[2]
				return
			}
		}
	}
	if m != nil && m[1] == "vmid" {
		f.TemplateError = m[2]
		return
	}
	f.StartError = message
}

func (f *startForm) hasErrors() bool {
	bad := func(x startField) bool { return x.FieldError != "" }
	return f.StartError != "" || f.TemplateError != "" || slices.ContainsFunc(f.MainFields, bad) ||
		slices.ContainsFunc(f.More, bad)
}

// retryableCodes are the failures of a start that its form can mend.
var retryableCodes = []client.Code{
	client.ErrInvalid, client.ErrRefused, client.ErrNotFound, client.ErrNoVersion,
	client.ErrConflict, client.ErrTooLarge,
}

func doStart(v *visit) (actionResult, error) {
	r, f := readStartForm(v)
	if v.query.Get("preview") == "1" {
		f.addChoices(v)
		return actionResult{Form: f}, nil
	}
	var ids []string
	if !f.hasErrors() {
		r.IdempotencyKey = f.Key
		var err error
		ids, err = v.Start(v, r)
		if err != nil && !slices.Contains(retryableCodes, client.CodeOf(err)) {
			return actionResult{}, err
		}
		if err != nil {
			f.setError(notShownReason(err))
		}
	}
	if f.hasErrors() {
		f.Key = client.NewKey()
		f.addChoices(v)
		return actionResult{Form: f, Invalid: true}, nil
	}
	if len(ids) == 1 {
		return actionResult{ResultPath: "/instances/" + url.PathEscape(ids[0])}, nil
	}
	out := actionResult{Back: "/instances"}
	for _, id := range ids {
		out.Items = append(out.Items, itemResult{Name: id, Path: "/instances/" + url.PathEscape(id), Said: "Requested"})
	}
	return out, nil
}
