package portal

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
)

// startField is a field of the form that starts instances, called as the API calls it.
type startField struct {
	Section, Default  string // that it is the first under, and what applies there without a value; "": it continues
	Name, Label, Hint string
	List              string // of suggestions for a text; "": none
	Kind              string // number, area, choice; "": text
	Choices           []choice
	MaxValue          int    // of a number
	Empty             string // what applies without a value; "": nothing is shown
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
	{Name: "tag", Label: "Tag", List: "tags", setValue: textField(func(r *startRequest) *string { return &r.Tag })},
	{
		Name: "name", Label: "Name", Hint: "Shown in lists. It need not be unique.",
		setValue: textField(func(r *startRequest) *string { return &r.Name }),
	},
	{
		Name: "count", Label: "Instances", Kind: "number", MaxValue: 1000, Empty: "1",
		setValue: numberField(func(r *startRequest) *int { return &r.Count }),
	},
	{
		Name: "ttl", Label: "Terminate after",
		Hint: "A duration such as 90s or 2h. Empty: until it is terminated.",
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
		Name: "group_id", Label: "Group of nodes", Kind: "choice",
		setValue: textField(func(r *startRequest) *string { return &r.GroupID }),
	},
}

var startFields = []startField{
	{
		Section: "Startup script", Default: "none", Name: "startup_script", Label: "Script", Kind: "area",
		setValue: func(r *startRequest, text string) error {
			r.StartupScript = []byte(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text))
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
		Section: "Machine", Default: "as the template",
		Name: "vcpu", Label: "Virtual CPUs", Kind: "number", MaxValue: 4096,
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
		Name: "usb_device", Label: "USB device", Hint: "A claim name or a location.",
		setValue: textField(func(r *startRequest) *string { return &r.USBDevice }),
	},
	{
		Section: "Placement", Default: "any node, priority 1000",
		Name: "node_id", Label: "Node", List: "nodes", Hint: "A name or an ID. Empty: any.",
		setValue: textField(func(r *startRequest) *string { return &r.NodeID }),
	},
	{
		Name: "priority", Label: "Priority", Kind: "number", MaxValue: 10000,
		Hint:     "1 to 10000, lower is sooner. Empty: 1000.",
		setValue: numberField(func(r *startRequest) *int { return &r.Priority }),
	},
	{
		Name: "version", Label: "Version", Hint: "A number instead of the tag.",
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
		Name: "group", Label: "Permission group",
		Hint:     "The permission group to act as. Required with resource rights on nodes, rejected otherwise.",
		setValue: textField(func(r *startRequest) *string { return &r.Group }),
	},
	{
		Section: "Network and ports", Default: "as the template",
		Name: "network_mode", Label: "Network", Kind: "choice",
		Choices: newChoices("shared", "nat",
			"host", "bridge",
			"disconnected"), setValue: textField(func(r *startRequest) *string { return &r.NetworkMode }),
	},
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
		Section: "Metadata and external ID", Default: "none",
		Name: "external_id", Label: "External ID", Hint: "Identifier in your own systems.",
		setValue: textField(func(r *startRequest) *string { return &r.ExternalID }),
	},
	{Name: "metadata", Label: "Metadata", Kind: "area", Hint: "One per line: key=value.", setValue: setMetadata},
	{
		Section: "Console and hardware identity", Default: "as the template",
		Name: "name_template", Label: "Name of the VM",
		Hint:     "May hold $template_name, $template_id, $instance_id, $node_name, $node_id, $ts.",
		setValue: textField(func(r *startRequest) *string { return &r.NameTemplate }),
	},
	{
		Name: "vnc_password", Label: "VNC password", Hint: "At most 8 characters.",
		setValue: textField(func(r *startRequest) *string { return &r.VNCPassword }),
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
