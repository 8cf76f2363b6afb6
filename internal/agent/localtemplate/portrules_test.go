package localtemplate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestParsePort(t *testing.T) {
	for text, want := range map[string]api.ConfigPort{
		"ssh":             {RuleName: "ssh", Protocol: "tcp", GuestPort: 22},
		"ssh:2222":        {RuleName: "ssh", Protocol: "tcp", GuestPort: 2222},
		"web:80:8080":     {RuleName: "web", Protocol: "tcp", GuestPort: 80, HostPort: 8080},
		"dns:53:5353/udp": {RuleName: "dns", Protocol: "udp", GuestPort: 53, HostPort: 5353},
		"x:65535:0":       {RuleName: "x", Protocol: "tcp", GuestPort: 65535},
	} {
		got, err := localtemplate.ParsePort(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	for _, text := range []string{
		"", "web", "web:", ":80", "web:0", "web:65536", "web:-1", "web:80:65536", "web:80:1:2", "web:80/sctp", "a b:80",
		"web:80:", "../x:80",
	} {
		if got, err := localtemplate.ParsePort(text); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("%q gives %+v, %v", text, got, err)
		}
	}
}

func TestParsePorts(t *testing.T) {
	if got, err := localtemplate.ParsePorts([]string{"none"}); err != nil || got == nil || len(got) != 0 {
		t.Errorf("none: %v, %v", got, err)
	}
	if got, err := localtemplate.ParsePorts([]string{"ssh", "web:80"}); err != nil || len(got) != 2 {
		t.Errorf("two rules: %v, %v", got, err)
	}
	if _, err := localtemplate.ParsePorts([]string{"web:80", "web:81"}); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("one name twice: %v", err)
	}
}

func FuzzPort(f *testing.F) {
	for _, seed := range []string{
		"ssh", "ssh:22", "web:80:8080", "dns:53:5353/udp", "x:0", ":::", "a:1/tcp", "a:99999",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rule, err := localtemplate.ParsePort(text)
		if err != nil {
			return
		}
		if rule.GuestPort < 1 || rule.GuestPort > 65535 || rule.HostPort < 0 || rule.HostPort > 65535 ||
			rule.RuleName == "" {
			t.Fatalf("%q gives %+v", text, rule)
		}
		again, err := localtemplate.ParsePort(localtemplate.FormatPort(rule))
		if err != nil || again != rule {
			t.Fatalf("%q gives %+v, written %q, read %+v, %v", text, rule, localtemplate.FormatPort(rule), again, err)
		}
	})
}
