package localtemplate

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// SSHRule is the port rule of a template without rules: CI executors connect through it.
var SSHRule = api.ConfigPort{RuleName: "ssh", Protocol: "tcp", GuestPort: 22}

// maxRules limits the port rules of a template.
const maxRules = 256

var ruleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ParsePort reads a port rule "name:guest[:host][/tcp|/udp]". "ssh" alone is SSHRule; a
// host port that is left out or 0 is chosen by the node.
func ParsePort(text string) (api.ConfigPort, error) {
	if text == SSHRule.RuleName {
		return SSHRule, nil
	}
	refuse := func(why string) (api.ConfigPort, error) {
		return api.ConfigPort{},
			farm.Invalid("port", "rule %q %s; want a rule such as ssh:22, web:80:8080 or dns:53:5353/udp",
				text, why)
	}
	rest, protocol, given := strings.Cut(text, "/")
	if !given {
		protocol = "tcp"
	}
	if protocol != "tcp" && protocol != "udp" {
		return refuse("has a protocol other than tcp and udp")
	}
	parts := strings.Split(rest, ":")
	if len(parts) < 2 || len(parts) > 3 || !ruleName.MatchString(parts[0]) {
		return refuse("is not a port rule")
	}
	rule := api.ConfigPort{RuleName: parts[0], Protocol: protocol}
	guest, err := strconv.ParseUint(parts[1], 10, 16)
	if err != nil || guest == 0 {
		return refuse("has no guest port from 1 to 65535")
	}
	rule.GuestPort = int(guest)
	if len(parts) == 3 {
		host, err := strconv.ParseUint(parts[2], 10, 16)
		if err != nil {
			return refuse("has no host port from 0 to 65535")
		}
		rule.HostPort = int(host)
	}
	return rule, nil
}

// ParsePorts reads the rules of one template; the single word "none" stands for no
// rule. Names must differ.
func ParsePorts(list []string) ([]api.ConfigPort, error) {
	if len(list) == 1 && list[0] == "none" {
		return []api.ConfigPort{}, nil
	}
	if len(list) > maxRules {
		return nil, farm.Invalid("port", "%d port rules: want at most %d", len(list), maxRules)
	}
	rules := make([]api.ConfigPort, 0, len(list))
	seen := map[string]bool{}
	for _, text := range list {
		rule, err := ParsePort(text)
		if err != nil {
			return nil, err
		}
		if seen[rule.RuleName] {
			return nil, farm.Invalid("port", "two port rules have the name %q", rule.RuleName)
		}
		seen[rule.RuleName] = true
		rules = append(rules, rule)
	}
	return rules, nil
}

// FormatPort writes a rule so that ParsePort reads the same one.
func FormatPort(p api.ConfigPort) string {
	text := p.RuleName + ":" + strconv.Itoa(p.GuestPort)
	if p.HostPort != 0 {
		text += ":" + strconv.Itoa(p.HostPort)
	}
	if p.Protocol != "" && p.Protocol != "tcp" {
		text += "/" + p.Protocol
	}
	return text
}
