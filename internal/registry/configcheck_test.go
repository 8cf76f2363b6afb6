package registry

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// pushOf is a negotiation with a configuration, a disk and a state file.
func pushOf(config string) api.PushRequest {
	return api.PushRequest{Name: "x", Tag: "v1", Config: json.RawMessage(config), Files: []api.PushFile{
		{Name: "disk.img", Kind: api.FileDisk}, {Name: "memory", Kind: api.FileState},
	}}
}

func TestConfigurationsAreChecked(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	for config, field := range map[string]string{
		`null`:                          "config",
		`[1]`:                           "config",
		`{"cpu":`:                       "config",
		``:                              "config",
		`{"cpu":"x"}`:                   "config.cpu",
		`{"cpu":{"cores":"x"}}`:         "config.cpu.cores",
		`{"cpu":{"cores":1.5}}`:         "config.cpu.cores",
		`{"cpu":{"cores":1000000000}}`:  "config.cpu.cores",
		`{"cpu":{"cores":-1}}`:          "config.cpu.cores",
		`{"cpu":{}}`:                    "config.cpu.cores",
		`{"ram":5}`:                     "config.ram",
		`{"ram":"-5G"}`:                 "config.ram",
		`{"ram":"lots"}`:                "config.ram",
		`{"ram":"63M"}`:                 "config.ram",
		`{"ram":"999999999G"}`:          "config.ram",
		`{"ram":"99999999999999999G"}`:  "config.ram",
		`{"hard_drives":"x"}`:           "config.hard_drives",
		`{"hard_drives":[5]}`:           "config.hard_drives",
		`{"hard_drives":[{"file":""}]}`: "config.hard_drives[0].file",
		`{"hard_drives":[{"file":"disk.img"},{"file":"config.json"}]}`:                            "config.hard_drives[1].file",
		`{"hard_drives":[{"file":"disk.img"},{"file":"disk.img"}]}`:                               "config.hard_drives[1].file",
		`{"hard_drives":[{"file":"memory"}]}`:                                                     "config.hard_drives[0].file",
		`{"hard_drives":[{"file":"../disk.img"}]}`:                                                "config.hard_drives[0].file",
		`{"hard_drives":[{"file":"disk.img","format":"vmdk"}]}`:                                   "config.hard_drives[0].format",
		`{"firmware":{"type":"open"}}`:                                                            "config.firmware.type",
		`{"firmware":"bios"}`:                                                                     "config.firmware",
		`{"network_cards":[{"mode":"token-ring"}]}`:                                               "config.network_cards[0].mode",
		`{"network_cards":[{"mac_address":"aa"}]}`:                                                "config.network_cards[0].mac_address",
		`{"network_cards":[{"port_forwarding_rules":[{"guest_port":0}]}]}`:                        "config.network_cards[0].port_forwarding_rules[0].guest_port",
		`{"network_cards":[{"port_forwarding_rules":[{"guest_port":1,"host_port":65536}]}]}`:      "config.network_cards[0].port_forwarding_rules[0].host_port",
		`{"network_cards":[{"port_forwarding_rules":[{"guest_port":1,"protocol":"x"}]}]}`:         "config.network_cards[0].port_forwarding_rules[0].protocol",
		`{"network_cards":[{"port_forwarding_rules":[{"guest_port":1,"host_ip":"x"}]}]}`:          "config.network_cards[0].port_forwarding_rules[0].host_ip",
		`{"network_cards":[{"port_forwarding_rules":[{"guest_port":1,"rule_name":"a\u0001b"}]}]}`: "config.network_cards[0].port_forwarding_rules[0].rule_name",
		`{"nvram":5}`:               "config.nvram",
		`{"state_file":"disk.img"}`: "config.state_file",
		`{"state_file":"gone"}`:     "config.state_file",
		`{"hard_drives":[` + strings.Repeat(`{},`, 64) +
			`{}]}`: "config.hard_drives",
		`{"network_cards":[` + strings.Repeat(`{},`, 8) +
			`{}]}`: "config.network_cards",
		`{"network_cards":[{"port_forwarding_rules":[` + strings.Repeat(`{"guest_port":1},`, 256) +
			`{"guest_port":1}]}]}`: "config.network_cards[0].port_forwarding_rules",
	} {
		_, err := r.Negotiate(t.Context(), pushOf(config))
		e, ok := err.(*farm.Error) //nolint:errorlint // nothing wraps it
		if !ok || e.Code != farm.CodeInvalid || !sameField(e.Field, field) ||
			!strings.HasPrefix(e.Message, e.Field+": ") ||
			strings.Contains(e.Message, "Go ") || strings.Contains(e.Message, "map[") {
			t.Errorf("%s: %v; want a refusal of %s", config, err, field)
		}
	}
	for _, config := range []string{
		`{}`, `{"ram":"64M","cpu":{"cores":512}}`, `{"ram":"4GB"}`, `{"ram":"4096"}`, `{"ram":"16384G"}`,
		`{"of_tomorrow":{"ram":5}}`,
		`{"hard_drives":[{"file":"disk.img","format":"raw"}],"firmware":{"type":"uefi"},"nvram":true,"state_file":"memory"}`,
		`{"network_cards":[{"mode":"bridge","mac_address":"aa:bb:cc:dd:ee:ff","port_forwarding_rules":[{"rule_name":"ssh","guest_port":22,"host_ip":"::1"}]}]}`,
	} {
		if _, err := r.Negotiate(t.Context(), pushOf(config)); err != nil {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// sameField lets the decoder omit indexes of lists, which it does not report.
func sameField(got, want string) bool {
	return got == want || slices.Equal(strings.FieldsFunc(got, inList), strings.FieldsFunc(want, inList))
}

func inList(r rune) bool { return r == '[' || r == ']' || '0' <= r && r <= '9' }

// FuzzCheckConfig: every accepted configuration decodes for all of its readers.
func FuzzCheckConfig(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"ram":"4G","cpu":{"cores":2}}`, `{"hard_drives":[{"file":"disk.img"}]}`, `{"CPU":5}`, `{"a":[`,
		`{"os":"macos","apple":{"hardware_model":"YQ==","machine_id":"YQ==","cpu_min":2,"identity":"keep"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		req := pushOf(string(raw))
		if checkPushRequest(&req) != nil {
			return
		}
		var c api.TemplateConfig
		if err := json.Unmarshal(req.Config, &c); err != nil {
			t.Fatalf("%s was let through: %v", raw, err)
		}
		if c.CPU != nil && (c.CPU.Cores < 1 || c.CPU.Cores > maxCores) {
			t.Fatalf("%s was let through", raw)
		}
	})
}

func TestNamesAndTagsAreSeen(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	for field, change := range map[string]func(*api.PushRequest){
		"tag": func(q *api.PushRequest) { q.Tag = "  " }, "name": func(q *api.PushRequest) { q.Name = " \u00a0" },
	} {
		req := pushOf(`{}`)
		change(&req)
		_, err := r.Negotiate(t.Context(), req)
		if farm.CodeOf(err) != farm.CodeInvalid || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%s of spaces: %v", field, err)
		}
	}
	req := pushOf(`{}`)
	req.Name, req.Tag = "mac/15 + x", "v1+a b/#:ü"
	if _, err := r.Negotiate(t.Context(), req); err != nil {
		t.Error(err)
	}
}

// TestLimitsOfAPush: a push at its limits is accepted, and one beyond them is not.
func TestLimitsOfAPush(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	for field, c := range map[string]struct {
		most int64
		set  func(*api.PushRequest, int64)
	}{
		"name":        {255, func(q *api.PushRequest, n int64) { q.Name = text(int(n)) }},
		"tag":         {255, func(q *api.PushRequest, n int64) { q.Tag = text(int(n)) }},
		"description": {4096, func(q *api.PushRequest, n int64) { q.Description = text(int(n)) }},
		"nvram":       {4 << 20, func(q *api.PushRequest, n int64) { q.NVRAM = make([]byte, n) }},
		"resume_key":  {128, func(q *api.PushRequest, n int64) { q.ResumeKey = text(int(n)) }},
		"files": {256, func(q *api.PushRequest, n int64) {
			q.Files = nil
			for i := range n {
				q.Files = append(q.Files, api.PushFile{Name: fmt.Sprint("disk", i), Kind: api.FileDisk})
			}
		}},
		"files, size": {blob.MaxContentSize, func(q *api.PushRequest, n int64) { q.Files[0].Size = n }},
	} {
		for _, n := range []int64{c.most, c.most + 1} {
			req := pushOf(`{}`)
			c.set(&req, n)
			err := checkPushRequest(&req)
			if n == c.most && err != nil {
				t.Errorf("%s of %d: %v", field, n, err)
			}
			name, _, _ := strings.Cut(field, ",")
			if n > c.most && (farm.CodeOf(err) != farm.CodeInvalid || !strings.HasPrefix(err.Error(), name+": ")) {
				t.Errorf("%s of %d: %v", field, n, err)
			}
		}
	}
}

// TestConfigurationFitsWithItsName: what a negotiation accepts, the commit accepts too.
func TestConfigurationFitsWithItsName(t *testing.T) {
	for size, fits := range map[int]bool{layout.MaxConfigJSON - 2000: true, layout.MaxConfigJSON - 10: false} {
		if fits && !fulltest.All() {
			continue // it is long work: TestConfigurationsAreChecked has smaller ones
		}
		req := request(idA, "v1")
		req.Config = json.RawMessage(`{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}`)
		_, err := push(open(t, t.TempDir(), newClock()), req)
		if fits && err != nil || !fits && farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
