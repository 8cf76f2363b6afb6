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

func (p *portal) startDeeds() []deed {
	return []deed{{path: "/instances/start", name: "start", title: "Start instance", ask: askStart, do: doStart}}
}

// startField is a field of the form that starts instances, called as the API calls it.
type startField struct {
	Name, Label, Hint string
	Kind              string // number, area, choice; "": text
	Choices           []choice
	Most              int // of a number
	set               func(r *client.StartRequest, text string) error

	Value, Wrong string
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

var errNoInteger = errors.New("must be an integer")

// numberField sets an integer.
func numberField(of func(r *client.StartRequest) *int) func(*client.StartRequest, string) error {
	return func(r *client.StartRequest, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil {
			return errNoInteger
		}
		*of(r) = n
		return nil
	}
}

type start = client.StartRequest

// firstFields are what nearly every start says, the others what few do.
var firstFields = []startField{
	{Name: "tag", Label: "Tag", Hint: "Empty: the latest.", set: textField(func(r *start) *string { return &r.Tag })},
	{Name: "count", Label: "How many", Kind: "number", Most: 1000, set: numberField(func(r *start) *int { return &r.Count })},
	{Name: "name", Label: "Name", set: textField(func(r *start) *string { return &r.Name })},
}

var startFields = []startField{
	{Name: "external_id", Label: "External id", Hint: "What your own programs call it.", set: textField(func(r *start) *string { return &r.ExternalID })},
	{Name: "node_id", Label: "Node", Kind: "choice", set: textField(func(r *start) *string { return &r.NodeID })},
	{Name: "group_id", Label: "Group of nodes", Kind: "choice", set: textField(func(r *start) *string { return &r.GroupID })},
	{Name: "priority", Label: "Priority", Kind: "number", Most: 10000, Hint: "1 to 10000; the lower, the sooner. Empty: 1000.", set: numberField(func(r *start) *int { return &r.Priority })},
	{Name: "ttl", Label: "Ends after", Hint: "A time such as 90s or 2h. Empty: when somebody ends it.", set: func(r *start, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil {
			return errors.New("must be a time such as 90s or 2h")
		}
		r.TTL = client.Duration(d)
		return nil
	}},
	{Name: "startup_script", Label: "Startup script", Kind: "area", set: func(r *start, text string) error {
		r.StartupScript = []byte(strings.ReplaceAll(text, "\r\n", "\n"))
		return nil
	}},
	{Name: "startup_script_condition", Label: "Runs", Kind: "choice", Choices: []choice{{"", "once the network is up"}, {"1", "as soon as it boots"}}, set: numberField(func(r *start) *int { return (*int)(&r.ScriptCondition) })},
	{Name: "script_monitoring", Label: "Its outcome", Kind: "choice", Choices: []choice{{"", "is not waited for"}, {"true", "is waited for and kept"}}, set: func(r *start, text string) error {
		r.ScriptMonitoring = text == "true"
		return nil
	}},
	{Name: "script_timeout", Label: "Script may take", Kind: "number", Most: 86400, Hint: "Seconds, where its outcome is waited for. Empty: 90.", set: numberField(func(r *start) *int { return &r.ScriptTimeout })},
	{Name: "script_fail_handler", Label: "If it fails", Kind: "choice", Choices: []choice{{"", "the VM is stopped"}, {"1", "the VM is kept"}, {"2", "the VM is deleted"}}, set: numberField(func(r *start) *int { return (*int)(&r.ScriptFailHandler) })},
	{Name: "metadata", Label: "Metadata", Kind: "area", Hint: "A line for each: key=value.", set: setMetadata},
	{Name: "vcpu", Label: "Virtual CPUs", Kind: "number", Most: 4096, Hint: "Empty: as the template says.", set: numberField(func(r *start) *int { return &r.VCPU })},
	{Name: "vram", Label: "Memory, MB", Kind: "number", Most: 1 << 24, Hint: "Empty: as the template says.", set: numberField(func(r *start) *int { return &r.VRAM })},
	{Name: "disk", Label: "Disk", Hint: "A size such as 80G, if it is to grow.", set: func(r *start, text string) error {
		r.Disk = &client.Disk{Size: text}
		return nil
	}},
	{Name: "network_mode", Label: "Network", Kind: "choice", Choices: choicesOf("shared", "nat", "host", "bridge", "disconnected"), set: textField(func(r *start) *string { return &r.NetworkMode })},
	{Name: "vlan_tag", Label: "VLAN", set: textField(func(r *start) *string { return &r.VLANTag })},
	{Name: "mac_address", Label: "MAC address", set: textField(func(r *start) *string { return &r.MACAddress })},
	{Name: "usb_device", Label: "USB device", Hint: "A claim name or a location.", set: textField(func(r *start) *string { return &r.USBDevice })},
	{Name: "port_forwarding_override", Label: "Ports", Kind: "area", Hint: "A line for each, instead of the template's: name, port in the VM, port of the node (which may be left out).", set: setPorts},
	{Name: "name_template", Label: "Name of the VM", Hint: "May hold $template_name, $instance_id, $node_name, $ts.", set: textField(func(r *start) *string { return &r.NameTemplate })},
	{Name: "vnc_password", Label: "VNC password", set: textField(func(r *start) *string { return &r.VNCPassword })},
	{Name: "group", Label: "Permission group", Hint: "As which of yours it is started.", set: textField(func(r *start) *string { return &r.Group })},
}

func choicesOf(values ...string) []choice {
	all := []choice{{"", "as the template says"}}
	for _, value := range values {
		all = append(all, choice{value, value})
	}
	return all
}

func setMetadata(r *start, text string) error {
	r.Metadata = map[string]any{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(key) == "" {
			return errors.New("needs key=value in each line")
		}
		r.Metadata[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return nil
}

func setPorts(r *start, text string) error {
	for line := range strings.Lines(text) {
		words := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == ',' || c == '\t' || c == '\r' || c == '\n' })
		if len(words) == 0 {
			continue
		}
		if len(words) < 2 || len(words) > 3 {
			return errors.New("needs a name and one or two ports in each line")
		}
		rule := client.PortRule{Name: words[0]}
		for i, to := range []*int{&rule.GuestPort, &rule.HostPort}[:len(words)-1] {
			n, err := strconv.Atoi(words[i+1])
			if err != nil {
				return errors.New("has a port that is no number")
			}
			*to = n
		}
		r.Ports = append(r.Ports, rule)
	}
	return nil
}

// startForm is the form that starts instances.
type startForm struct {
	TemplateID    string
	TemplateWrong string
	Templates     []api.Template
	TemplatesWhy  string // they are not listed
	Tags          []string
	First, More   []startField
	Open          bool // something is said in More
	Wrong         string
	Key           string
	Curl          string
}

// startOf reads the form: the request that it makes, and the form as it was filled in.
func startOf(v *visit) (client.StartRequest, startForm) {
	r := client.StartRequest{TemplateID: strings.TrimSpace(v.q.Get("vmid"))}
	f := startForm{TemplateID: r.TemplateID, First: slices.Clone(firstFields), More: slices.Clone(startFields), Key: v.q.Get("key")}
	if f.Key == "" {
		f.Key = client.NewKey()
	}
	for _, fields := range [][]startField{f.First, f.More} {
		for i := range fields {
			field := &fields[i]
			if field.Value = strings.TrimSpace(v.q.Get(field.Name)); field.Value == "" {
				continue
			}
			if err := field.set(&r, field.Value); err != nil {
				field.Wrong = err.Error()
			}
		}
	}
	f.Curl = curl(v, "POST", "/api/v1/vm", jsonOf(r))
	return r, f
}

// fill adds what can be chosen. What the visitor may not see is typed instead.
func (f *startForm) fill(v *visit) {
	var err error
	f.Templates, err = v.Templates(v, client.ListOptions{})
	f.TemplatesWhy = refusal(err)
	if f.TemplateID != "" {
		if t, err := v.Template(v, f.TemplateID); err == nil {
			for _, version := range slices.Backward(t.Versions) {
				f.Tags = append(f.Tags, version.Tag)
			}
		}
	}
	nodes := []choice{{"", "any"}}
	if list, err := v.Nodes(v, client.ListOptions{}); err == nil {
		for _, n := range list {
			nodes = append(nodes, choice{n.NodeID, n.NodeName + " (" + n.State + ")"})
		}
	}
	groups := []choice{{"", "any"}}
	if list, err := v.Groups(v, client.ListOptions{}); err == nil {
		for _, g := range list {
			groups = append(groups, choice{g.ID, g.Name})
		}
	}
	for i := range f.More {
		field := &f.More[i]
		switch field.Name {
		case "node_id":
			field.Choices = known(nodes, field.Value)
		case "group_id":
			field.Choices = known(groups, field.Value)
		}
		f.Open = f.Open || field.Value != "" || field.Wrong != ""
	}
}

// known are choices, with the one that was made.
func known(all []choice, chosen string) []choice {
	if slices.ContainsFunc(all, func(c choice) bool { return c.Value == chosen }) {
		return all
	}
	return append(all, choice{chosen, chosen})
}

func askStart(v *visit) (any, error) {
	_, f := startOf(v)
	f.fill(v)
	return f, nil
}

// ofField is how the API says what is wrong with a field.
var ofField = regexp.MustCompile(`^([a-z_]+)(?:\[\d+\][a-z_.]*)?: (.+)$`)

// blame puts what the API says against a request to the field that it is about.
func (f *startForm) blame(message string) {
	m := ofField.FindStringSubmatch(message)
	for _, fields := range [][]startField{f.First, f.More} {
		for i := range fields {
			if m != nil && fields[i].Name == m[1] {
				fields[i].Wrong = m[2]
				return
			}
		}
	}
	if m != nil && m[1] == "vmid" {
		f.TemplateWrong = m[2]
		return
	}
	f.Wrong = message
}

func (f *startForm) faulty() bool {
	bad := func(x startField) bool { return x.Wrong != "" }
	return f.Wrong != "" || f.TemplateWrong != "" || slices.ContainsFunc(f.First, bad) || slices.ContainsFunc(f.More, bad)
}

// again are the failures of a start that its form can mend.
var again = []client.Code{client.ErrInvalid, client.ErrRefused, client.ErrNotFound, client.ErrNoVersion, client.ErrConflict, client.ErrTooLarge}

func doStart(v *visit) (outcome, error) {
	r, f := startOf(v)
	if v.q.Get("preview") == "1" {
		f.fill(v)
		return outcome{Again: f}, nil
	}
	var ids []string
	if !f.faulty() {
		r.IdempotencyKey = f.Key
		var err error
		ids, err = v.Start(v, r)
		if err != nil && !slices.Contains(again, client.CodeOf(err)) {
			return outcome{}, err
		}
		if err != nil {
			f.blame(refusal(err))
		}
	}
	if f.faulty() {
		f.Key = client.NewKey()
		f.fill(v)
		return outcome{Again: f, Wrong: true}, nil
	}
	if len(ids) == 1 {
		return outcome{To: "/instances/" + url.PathEscape(ids[0])}, nil
	}
	out := outcome{Back: "/instances"}
	for _, id := range ids {
		out.Items = append(out.Items, result{Name: id, Path: "/instances/" + url.PathEscape(id), Said: "Asked for"})
	}
	return out, nil
}
