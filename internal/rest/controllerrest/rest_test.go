package controllerrest_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry/files/filestest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/transfer"
)

const templateID = "11111111-2222-4333-8444-555555555555"

// scannedID is a template of which scans are reported; the registry does not list it.
const scannedID = "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032"

// shelf is a registry with one template.
type shelf struct{}

func (shelf) ListTemplates(context.Context) ([]api.Template, error) {
	return []api.Template{{ID: templateID, Name: "base", Size: 5, Arch: "amd64"}}, nil
}

func (shelf) TemplateDetail(_ context.Context, id string) (api.TemplateDetail, error) {
	if id == scannedID {
		return api.TemplateDetail{
			Template: api.Template{ID: id},
			Versions: []api.TemplateVersion{{Tag: "v1", ContentID: strings.Repeat("0", 64)}},
		}, nil
	}
	if id != templateID {
		return api.TemplateDetail{}, farm.NotFound()
	}
	return api.TemplateDetail{
		Template: api.Template{ID: templateID, Name: "base", Size: 5, Arch: "amd64"},
		Versions: []api.TemplateVersion{
			{Tag: "v1+x", Number: 0, ContentID: "c0", Arch: "amd64", Images: []string{}, StateFiles: []string{}},
		},
	}, nil
}

func (shelf) VersionConfig(context.Context, transfer.VersionRef) (api.TemplateConfig, error) {
	return api.TemplateConfig{RAM: "1G", CPU: &api.ConfigCPU{Cores: 2}}, nil
}

func (shelf) DiskInfo(context.Context) (api.DiskInfo, error) {
	return api.DiskInfo{Free: 3, Total: 4}, nil
}

func (shelf) Status(context.Context) (api.RegistryStatus, error) {
	return api.RegistryStatus{Status: "Running"}, nil
}

func (shelf) DeleteTemplate(_ context.Context, id string) error {
	if id != templateID {
		return farm.NotFound()
	}
	return nil
}

func (shelf) Revert(context.Context, transfer.VersionRef) error { return nil }

// cloud is a controller behind its routes.
type cloud struct {
	*controller.Controller
	t   *testing.T
	url string
	log *logBuffer

	handler http.Handler
	encoded *atomic.Int64 // number of records of instances that were encoded
}

// logBuffer stores the log.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// logged returns everything that was logged so far.
func (c *cloud) logged() string {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.log.text.String()
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	return newCloudWith(t, controller.Options{})
}

// newCloudWith opens a cloud with the given options.
func newCloudWith(t *testing.T, o controller.Options, change ...func(*controllerrest.Options)) *cloud {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	encoded := new(atomic.Int64)
	tables := record.NewTables(func(i *farm.Instance) []byte {
		encoded.Add(1)
		return controllerrest.InstanceJSON(i)
	})
	logs := &logBuffer{}
	log := slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	st, err := store.Open(ctx, mem.New(), store.Options{Tables: tables.All()})
	if err != nil {
		t.Fatal(err)
	}
	o.Registry, o.RegistryAddress, o.VMNamePrefix, o.Version, o.Logger = shelf{}, "http://registry", "mgmtManaged-",
		"1.2.3-abc", log
	o.Files = filestest.Open(t)
	c, err := controller.New(ctx, st, tables, o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	packages, _ := o.Packages.(controllerrest.PackageFiles)
	routes := controllerrest.Options{
		Controller: c, VMNamePrefix: "mgmtManaged-", RequestTimeout: time.Minute, Logger: log, Packages: packages,
	}
	for _, do := range change {
		do(&routes)
	}
	handler := controllerrest.Handler(routes)
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.Close()
		cancel()
		<-done
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return &cloud{Controller: c, t: t, url: server.URL, log: logs, handler: handler, encoded: encoded}
}

// answer is a response.
type answer struct {
	code    int
	Status  string          `json:"status"`
	Message string          `json:"message"`
	Body    json.RawMessage `json:"body"`
}

func (c *cloud) call(method, path, body string, header ...string) answer {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	a := answer{code: resp.StatusCode}
	if err := json.Unmarshal(raw, &a); err != nil {
		c.t.Fatalf("%s %s answered %q: %v", method, path, raw, err)
	}
	return a
}

func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if a.Status != "OK" || a.Message != "" {
		t.Fatalf("answer %d %s %q", a.code, a.Status, a.Message)
	}
	if err := json.Unmarshal(a.Body, v); err != nil {
		t.Fatalf("body %s: %v", a.Body, err)
	}
}

// start starts one instance and returns its ID.
func (c *cloud) start(fields string) string {
	c.t.Helper()
	var ids []string
	c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`"`+fields+`}`).into(c.t, &ids)
	if len(ids) != 1 {
		c.t.Fatalf("ids = %v", ids)
	}
	return ids[0]
}

func TestBadStartParameters(t *testing.T) {
	c := newCloud(t)
	ok := `"vmid":"` + templateID + `"`
	cases := []struct{ name, body, field string }{
		{"no template", `{}`, "vmid"},
		{"empty template", `{"vmid":""}`, "vmid"},
		{"template of another type", `{"vmid":7}`, "vmid"},
		{"count 0", `{` + ok + `,"count":0}`, "count"},
		{"count 1001", `{` + ok + `,"count":1001}`, "count"},
		{"count text", `{` + ok + `,"count":"many"}`, "count"},
		{"count fraction", `{` + ok + `,"count":1.5}`, "count"},
		{"version negative", `{` + ok + `,"version":-1}`, "version"},
		{"priority 10001", `{` + ok + `,"priority":10001}`, "priority"},
		{"priority negative", `{` + ok + `,"priority":-5}`, "priority"},
		{"script not base64", `{` + ok + `,"startup_script":"***"}`, "startup_script"},
		{"condition 2", `{` + ok + `,"startup_script_condition":2}`, "startup_script_condition"},
		{"monitoring text", `{` + ok + `,"script_monitoring":"perhaps"}`, "script_monitoring"},
		{"monitoring nothing", `{` + ok + `,"script_monitoring":true}`, "script_monitoring"},
		{"time-out without monitoring", `{` + ok + `,"script_timeout":5}`, "script_timeout"},
		{"time-out 0", `{` + ok + `,"script_timeout":0,"script_monitoring":true}`, "script_timeout"},
		{"handler 3", `{` + ok + `,"script_fail_handler":3}`, "script_fail_handler"},
		{"handler without monitoring", `{` + ok + `,"script_fail_handler":2}`, "script_fail_handler"},
		{"name of another type", `{` + ok + `,"name":{}}`, "name"},
		{"name with a line break", `{` + ok + `,"name":"a\nb"}`, "name"},
		{"metadata list", `{` + ok + `,"metadata":[1]}`, "metadata"},
		{"metadata nested", `{` + ok + `,"metadata":{"a":{"b":1}}}`, "metadata"},
		{"metadata fraction", `{` + ok + `,"metadata":{"a":1.5}}`, "metadata"},
		{"mac of five bytes", `{` + ok + `,"mac_address":"aa:bb:cc:dd:ee"}`, "mac_address"},
		{"mac of nobody", `{` + ok + `,"mac_address":"00:00:00:00:00:00"}`, "mac_address"},
		{"mac of two", `{` + ok + `,"mac_address":"aa:bb:cc:dd:ee:ff","count":2}`, "mac_address"},
		{"hw_uuid", `{` + ok + `,"hw_uuid":"x"}`, "hw_uuid"},
		{"video controller", `{` + ok + `,"video_controller":"cga"}`, "video_controller"},
		{"hvapic", `{` + ok + `,"hvapic":"on"}`, "hvapic"},
		{"csr", `{` + ok + `,"csr_active_config":"forceOff"}`, "csr_active_config"},
		{"network local", `{` + ok + `,"network_local":"on"}`, "network_local"},
		{"network mode", `{` + ok + `,"network_mode":"wifi"}`, "network_mode"},
		{"vlan", `{` + ok + `,"vlan_tag":"x"}`, "vlan_tag"},
		{"vlan 0", `{` + ok + `,"vlan_tag":0}`, "vlan_tag"},
		{"vlan 4095", `{` + ok + `,"vlan_tag":4095}`, "vlan_tag"},
		{"vcpu", `{` + ok + `,"vcpu":0}`, "vcpu"},
		{"vcpu 513", `{` + ok + `,"vcpu":513}`, "vcpu"},
		{"vram", `{` + ok + `,"vram":"much"}`, "vram"},
		{"vram 63", `{` + ok + `,"vram":63}`, "vram"},
		{"VNC password of nine bytes", `{` + ok + `,"vnc_password":"123456789"}`, "vnc_password"},
		{"hw_uuid in braces", `{` + ok + `,"hw_uuid":"{` + templateID + `}"}`, "hw_uuid"},
		{"one hw_uuid for two", `{` + ok + `,"count":2,"hw_uuid":"` + templateID + `"}`, "hw_uuid"},
		{"disk of 65 TB", `{` + ok + `,"disk":{"size":"65T"}}`, "disk: size"},
		{"disk beyond all bounds", `{` + ok + `,"disk":{"size":"9999999999999T"}}`, "disk: size"},
		{"disk of nothing", `{` + ok + `,"disk":{"size":"0G"}}`, "disk: size"},
		{"disk in small letters", `{` + ok + `,"disk":{"size":"1g"}}`, "disk: size"},
		{"disk of another type", `{` + ok + `,"disk":{"size":10}}`, "disk: size"},
		{"skip that is no truth value", `{` + ok +
			`,"disk":{"size":"1G","skip_container_resize":"perhaps"}}`, "disk: skip_container_resize"},
		{"disk without size", `{` + ok + `,"disk":{}}`, "disk"},
		{"disk size", `{` + ok + `,"disk":{"size":"10"}}`, "disk"},
		{"disk text", `{` + ok + `,"disk":"10G"}`, "disk"},
		{"ports text", `{` + ok + `,"port_forwarding_override":"22"}`, "port_forwarding_override"},
		{"port without name", `{` + ok +
			`,"port_forwarding_override":[{"guest_port":22}]}`, "port_forwarding_override"},
		{"port without guest port", `{` + ok +
			`,"port_forwarding_override":[{"name":"ssh"}]}`, "port_forwarding_override"},
		{"port 70000", `{` + ok +
			`,"port_forwarding_override":[{"name":"ssh","guest_port":70000}]}`, "port_forwarding_override"},
		{"host port twice", `{` + ok +
			`,"port_forwarding_override":[{"name":"a","guest_port":1,"host_port":9},{"name":"b","guest_port":2,"host_port":9}]}`, "port_forwarding_override"},
		{"host ip of IPv6", `{` + ok +
			`,"port_forwarding_override":[{"name":"a","guest_port":1,"host_ip":"::1"}]}`, "port_forwarding_override"},
		{
			"host ip with a zone", `{` + ok +
				`,"port_forwarding_override":[{"name":"a","guest_port":1,"host_ip":"::1%,id=x"}]}`,
			"port_forwarding_override: host_ip",
		},
		{
			"host ip mapped", `{` + ok +
				`,"port_forwarding_override":[{"name":"a","guest_port":1,"host_ip":"::ffff:1.2.3.4"}]}`,
			"port_forwarding_override",
		},
		{"long name template", `{` + ok + `,"name_template":"` + strings.Repeat("a", 244) + `"}`, "name_template"},
		{"name template that grows", `{` + ok + `,"name_template":"` + strings.Repeat("$node_id", 7) +
			`"}`, "name_template"},
		{"host ip", `{` + ok +
			`,"port_forwarding_override":[{"name":"a","guest_port":1,"host_ip":"here"}]}`, "port_forwarding_override"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			a := c.call("POST", "/api/v1/vm", tc.body)
			if a.code != http.StatusBadRequest || a.Status != "FAIL" || !strings.HasPrefix(a.Message, tc.field+": ") {
				t.Errorf("answer %d %s %q, want 400 naming %s", a.code, a.Status, a.Message, tc.field)
			}
		})
	}
	if n := len(c.Instances.List(instances.Page{})); n != 0 {
		t.Errorf("%d instances were created by bad requests", n)
	}
}

func TestPriorityNamesItsRange(t *testing.T) {
	c := newCloud(t)
	for _, value := range []string{"-1", "10001", `"-1"`, "0.5"} {
		a := c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`","priority":`+value+`}`)
		if a.code != http.StatusBadRequest || a.Message != "priority: must be an integer between 1 and 10000" {
			t.Errorf("%s: %d %q", value, a.code, a.Message)
		}
	}
	c.start(`,"priority":"0"`)
	for _, inst := range c.Instances.List(instances.Page{}) {
		if inst.Options.Priority != farm.DefaultPriority {
			t.Errorf("priority 0 became %d", inst.Options.Priority)
		}
	}
}

func TestRefusedStartParameters(t *testing.T) {
	c := newCloud(t)
	for _, field := range []string{
		`"group":"g"`, `"usb_device":"u"`, `"mac_address":"AA:BB:CC:DD:EE:FF"`,
		`"vlan_tag":"5"`, `"hvapic":"forceOn"`, `"csr_active_config":"forceOn"`,
	} {
		a := c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`",`+field+`}`)
		name := strings.Split(field, `"`)[1]
		if a.code != http.StatusOK || a.Status != "FAIL" || !strings.HasPrefix(a.Message, name+" ") {
			t.Errorf("%s: answer %d %s %q, want a refusal that names it", field, a.code, a.Status, a.Message)
		}
	}
	if n := len(c.Instances.List(instances.Page{})); n != 0 {
		t.Errorf("%d instances were created by refused requests", n)
	}
	group := `{"vmid":"` + templateID + `","template_id":"` + templateID + `","group":"g"}`
	start, distribute := c.call("POST", "/api/v1/vm", group), c.call("POST", distributePath, group)
	if start.Message != distribute.Message || distribute.Status != "FAIL" {
		t.Errorf("a start is refused with %q, a distribution with %s %q", start.Message, distribute.Status,
			distribute.Message)
	}
}

func TestLiberalStarts(t *testing.T) {
	c := newCloud(t)
	ok := `{"vmid":"` + templateID + `"`
	for name, body := range map[string]string{
		"nulls":            ok + `,"count":null,"tag":null,"name":"","priority":0,"group_id":"","vcpu":null}`,
		"trailing newline": ok + "}\n",
		"unknown fields":   ok + `,"colour":"blue"}`,
		"ints as strings":  ok + `,"count":"1","priority":"5"}`,
		"upper case id":    `{"vmid":"` + strings.ToUpper(templateID) + `"}`,
		"tag with plus":    ok + `,"tag":"v1+x"}`,
		"defaults said":    ok + `,"script_timeout":90,"script_fail_handler":0,"script_monitoring":false}`,
		"port rules": ok +
			`,"port_forwarding_override":[{"rule_name":"ssh","guest_port":"22","host_port":"10022"}]}`,
		"name template":   ok + `,"name_template":"` + strings.Repeat("a", 243) + `"}`,
		"all variables":   ok + `,"name_template":"$template_name-$template_id-$instance_id-$node_name-$ts"}`,
		"host ip":         ok + `,"port_forwarding_override":[{"name":"a","guest_port":1,"host_ip":"127.0.0.1"}]}`,
		"url-safe script": ok + `,"startup_script":"ZWNobyA_Cg"}`,
	} {
		for _, header := range [][]string{
			nil, {"Content-Type", "application/json"}, {"Content-Type", "application/x-www-form-urlencoded"},
		} {
			if a := c.call("POST", "/api/v1/vm", body, header...); a.code != http.StatusOK || a.Status != "OK" {
				t.Errorf("%s %v: %d %s %q", name, header, a.code, a.Status, a.Message)
			}
		}
	}
	a := c.call("POST", "/api/v1/vm?vmid="+templateID+"&tag=v1%2Bx&count=2", "")
	var ids []string
	if a.into(t, &ids); len(ids) != 2 {
		t.Errorf("a start by query made %d instances", len(ids))
	}
}

func TestLogicalRefusals(t *testing.T) {
	c := newCloud(t)
	unknown := "99999999-2222-4333-8444-555555555555"
	for _, tc := range []struct{ method, path, body, message string }{
		{"POST", "/api/v1/vm", `{"vmid":"` + unknown + `"}`, "VM not in the registry"},
		{"POST", "/api/v1/vm", `{"vmid":"base"}`, "VM not in the registry"},
		{"POST", "/api/v1/vm", `{"vmid":"` + templateID + `","tag":"nope"}`, "No such tag nope"},
		{"GET", "/api/v1/vm?id=" + unknown, "", "Not found"},
		{"GET", "/api/v1/vm?id=x/../y", "", "Not found"},
		{"PUT", "/api/v1/vm?id=" + unknown, `{"name":"n"}`, "Not found"},
		{"DELETE", "/api/v1/vm", `{"id":"` + unknown + `"}`, "Not found"},
		{"GET", "/api/v1/node?id=" + unknown, "", "Not found"},
		{"DELETE", "/api/v1/node", `{"node_id":"` + unknown + `"}`, "Not found"},
		{"GET", "/api/v1/registry/vm?id=" + unknown, "", "Not found"},
		{"GET", "/api/v1/registry/vm?id=base", "", "Not found"},
	} {
		a := c.call(tc.method, tc.path, tc.body)
		if a.code != http.StatusOK || a.Status != "FAIL" || a.Message != tc.message || a.Body != nil {
			t.Errorf("%s %s %s: %d %s %q body %s", tc.method, tc.path, tc.body, a.code, a.Status, a.Message, a.Body)
		}
	}
}

func TestRequiredParameters(t *testing.T) {
	c := newCloud(t)
	for _, tc := range []struct{ method, path, body, field string }{
		{"PUT", "/api/v1/vm", `{"name":"n"}`, "id"},
		{"DELETE", "/api/v1/vm", ``, "id"},
		{"DELETE", "/api/v1/vm", `{"id":5}`, "id"},
		{"DELETE", "/api/v1/node", `{}`, "node_id"},
		{"GET", "/api/v1/registry/vm?apiVer=v9", "", "apiVer"},
		{"GET", "/api/v1/registry/vm?apiVer=v9&id=" + templateID, "", "apiVer"},
	} {
		a := c.call(tc.method, tc.path, tc.body)
		if a.code != http.StatusBadRequest || !strings.HasPrefix(a.Message, tc.field+": ") {
			t.Errorf("%s %s %s: %d %q", tc.method, tc.path, tc.body, a.code, a.Message)
		}
	}
	for _, body := range []string{`{`, `[]`, `"x"`, `{"vmid":`, "\x00"} {
		if a := c.call("POST", "/api/v1/vm", body); a.code != http.StatusBadRequest || a.Status != "FAIL" {
			t.Errorf("body %q: %d %s", body, a.code, a.Status)
		}
	}
}
