package controllerrest_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
)

// nodeToAPI is a build node that the test speaks for.
type nodeToAPI struct {
	c    *cloud
	id   string
	cred string
	no   int64
	held []api.InventoryItem
}

func (c *cloud) join() *nodeToAPI {
	c.t.Helper()
	joined, err := c.Nodes.Join(c.t.Context(),
		api.JoinRequest{
			Protocol: api.LinkProtocol, Token: c.Nodes.JoinToken(), Name: "n1", Host: "10.1.1.1",
			Capacity: 9,
		})
	if err != nil {
		c.t.Fatal(err)
	}
	n := &nodeToAPI{c: c, id: joined.NodeID, cred: joined.Credential}
	n.orders(0)
	return n
}

// orders polls for orders and acknowledges them.
func (n *nodeToAPI) orders(wait time.Duration) []api.Order {
	n.c.t.Helper()
	poll := func(acks []api.Ack, wait time.Duration) []api.Order {
		answer, err := n.c.Link.Poll(n.c.t.Context(), n.cred, api.PollRequest{
			Protocol: api.LinkProtocol, NodeID: n.id, BootID: "boot", InfoHash: "i", HeldHash: uuid.NewString(),
			Acks: acks, Held: n.held, HasHeld: true,
			Info: &api.NodeInfo{
				Arch: "amd64", Driver: "sim", CPUs: 512, MemoryMB: 16 <<
					20, USB: []api.USBDevice{{Name: "phone", Location: "1-2"}}, Abilities: []string{"bridge"},
				VLANs: []int{100, 20},
			},
		}, wait)
		if err != nil {
			n.c.t.Fatal(err)
		}
		return answer.Orders
	}
	var acks []api.Ack
	orders := poll(nil, wait)
	for _, o := range orders {
		acks = append(acks, api.Ack{InstanceID: o.InstanceID, Claim: o.Claim, Kind: o.Kind, Task: o.Task})
		n.held = append(n.held, api.InventoryItem{InstanceID: o.InstanceID, Claim: o.Claim})
	}
	poll(acks, 0)
	return orders
}

// order waits for the one order that comes.
func (n *nodeToAPI) order(kind api.OrderKind) api.Order {
	n.c.t.Helper()
	orders := n.orders(10 * time.Second)
	if len(orders) != 1 || orders[0].Kind != kind {
		n.c.t.Fatalf("orders = %+v, want one %s", orders, kind)
	}
	return orders[0]
}

// say reports a running instance with the status of its task.
func (n *nodeToAPI) say(o api.Order, task *api.TaskStatus) {
	n.c.t.Helper()
	n.no++
	_, err := n.c.Link.Report(n.c.t.Context(), n.cred, api.Report{
		Protocol: api.LinkProtocol, NodeID: n.id, BootID: "boot", Seq: n.no, Statuses: []api.InstanceStatus{{
			InstanceID: o.InstanceID, Claim: o.Claim, No: n.no, Phase: api.PhaseRunning, Task: task,
			VM: &api.NodeVM{
				UUID: "vm-1", Name: "vm", Status: "running", HostIP: "10.1.1.1", VNCPort: 5901,
				MAC: "52:54:00:00:00:01",
			},
		}},
	})
	if err != nil {
		n.c.t.Fatal(err)
	}
}

// started returns an instance that runs on a node, with its start order.
func (n *nodeToAPI) started(fields string) api.Order {
	n.c.t.Helper()
	n.c.start(fields)
	o := n.order(api.OrderStart)
	n.say(o, nil)
	return o
}

// save requests a save and returns the ID of the save request.
func (c *cloud) save(instance, fields string) string {
	c.t.Helper()
	var body map[string]string
	c.call("POST", "/api/v1/image", `{"id":"`+instance+`","tag":"v2"`+fields+`}`).into(c.t, &body)
	if len(body) != 1 || uuid.Validate(body["request_id"]) != nil {
		c.t.Fatalf("body = %v", body)
	}
	return body["request_id"]
}

func (c *cloud) image(id string) (image api.SaveImage, raw json.RawMessage) {
	c.t.Helper()
	a := c.call("GET", "/api/v1/image?id="+id, "")
	a.into(c.t, &image)
	return image, a.Body
}

func TestSaveImage(t *testing.T) {
	c := newCloud(t)
	n := c.join()
	o := n.started("")
	script := base64.StdEncoding.EncodeToString([]byte("echo $TOKEN\n"))
	id := c.save(o.InstanceID, `,"new_template_name":"fresh","description":"two\nlines","script":"`+script+
		`","do_suspend_sanity_test":true,"cancel_on_script_failure":true`)
	image, raw := c.image(id)
	want(t, "keys", keys(t, raw), []string{"error", "id", "request", "script_result", "status"})
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	want(t, "keys of the request", keys(t, fields["request"]), []string{
		"CancelOnScriptFailure", "Description", "DoSuspendTest", "InstanceID", "NewTemplateName", "NodeID", "Priority",
		"RegistryAddr",
		"RequestId", "ReserveExpiryTimestamp", "RevertBeforePush", "RevertTag", "Script", "Suspend", "Tag",
		"TemplateID", "Timestamp", "VMID",
	})
	want(t, "nulls", []string{string(fields["error"]), string(fields["script_result"])}, []string{"null", "null"})
	r := image.Request
	want(t, "request",
		[]any{
			image.ID, image.Status, r.RequestID, r.Priority, r.RegistryAddr, r.VMID, r.InstanceID, r.NodeID,
			r.NewTemplateName, r.Tag,
		},
		[]any{id, "pending", id, 1000, "http://registry", "vm-1", o.InstanceID, n.id, "fresh", "v2"})
	want(t, "more of it", []any{
		r.Description, r.Suspend, r.Script, r.DoSuspendTest, r.RevertBeforePush, r.RevertTag,
		r.CancelOnScriptFailure, r.ReserveExpiryTimestamp,
	},
		[]any{"two\nlines", true, "[redacted]", true, false, "", true, time.Time{}})
	if uuid.Validate(r.TemplateID) != nil || r.Timestamp.IsZero() {
		t.Errorf("template %q, time %s", r.TemplateID, r.Timestamp)
	}
	s := n.order(api.OrderSave)
	want(t, "script in the order", string(s.Save.Script), "echo $TOKEN\n")
	want(t, "template in the order", s.Save.TemplateID, r.TemplateID)

	n.say(o,
		&api.TaskStatus{
			ID: s.Task, Stage: api.TaskFailed, Code: 3,
			Script: &api.ScriptStatus{Code: 3, Stdout: "out", Stderr: "err"},
		})
	_, raw = c.image(id)
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	want(t, "end",
		[]string{string(fields["status"]), string(fields["error"]), string(fields["script_result"])}, []string{
			`"error"`, `{"Message":"Script execution failed","Code":3}`,
			`{"return_code":3,"did_timeout":false,"stdout":"out","stderr":"err"}`,
		})

	second := c.save(o.InstanceID,
		`,"target_vm_id":"`+templateID+`","suspend":"false","revert_before_push":true,"revert_tag":"v1+x"`)
	s = n.order(api.OrderSave)
	want(t, "order", s.Save, &api.SaveOrder{
		Registry: "http://registry", TemplateID: templateID, Tag: "v2", Revert: &api.PushRevert{Tag: "v1+x"},
	})
	n.say(o, &api.TaskStatus{ID: s.Task, Stage: api.TaskFailed, Message: "no room"})
	image, _ = c.image(second)
	want(t, "error", image.Error, &api.SaveImageError{Message: "no room", Type: "save.Error"})
	want(t, "script of a save without one", image.Request.Script, "")

	third := c.save(o.InstanceID, `,"new_template_name":"x"`)
	s = n.order(api.OrderSave)
	n.say(o, &api.TaskStatus{ID: s.Task, Stage: api.TaskDone})
	image, _ = c.image(third)
	want(t, "done", []any{image.Status, image.Error, image.ScriptResult},
		[]any{"done", (*api.SaveImageError)(nil), (*api.ScriptResult)(nil)})

	list := func(query string, ids ...string) {
		t.Helper()
		var images []api.SaveImage
		c.call("GET", "/api/v1/image"+query, "").into(t, &images)
		var got []string
		for _, image := range images {
			got = append(got, image.ID)
		}
		want(t, "list "+query, got, ids)
	}
	list("", id, second, third)
	list("?limit=2", id, second)
	list("?after="+id, second, third)
	list("?after="+strings.ToUpper(second)+"&limit=1", third)
	list("?after=" + third)
}

func TestScriptThatIsNotBase64(t *testing.T) {
	c := newCloud(t)
	o := c.join().started("")
	for script, message := range map[string]string{
		"ZWNobw==$": "illegal base64 data at input byte 8",
		"***":       "illegal base64 data at input byte 0",
		"ZWNob":     "illegal base64 data at input byte 4",
	} {
		image, _ := c.image(c.save(o.InstanceID, `,"new_template_name":"x","script":"`+script+`"`))
		want(t, script, image.Error, &api.SaveImageError{Message: message, Type: "base64.CorruptInputError"})
		want(t, "shown", []any{image.Status, image.Request.Script, image.ScriptResult == nil},
			[]any{"error", "[redacted]", true})
	}
	var inst api.Instance
	c.call("GET", "/api/v1/vm?id="+o.InstanceID, "").into(t, &inst)
	want(t, "instance", inst.InstanceState, "Started")
	c.save(o.InstanceID, `,"new_template_name":"x","script":"ZWNobyA_Cg"`) // the other alphabet, no padding
}

func TestBadSaveParameters(t *testing.T) {
	c := newCloud(t)
	o := c.join().started("")
	ok := `"id":"` + o.InstanceID + `","tag":"t","new_template_name":"n"`
	for _, tc := range []struct{ path, body, message string }{
		{"image", `{}`, "id: is required"},
		{"image", `{"id":"","tag":"t"}`, "id: is required"},
		{"image", `{"id":7,"tag":"t"}`, "id: must be a string"},
		{"image", `{"id":"x","new_template_name":"n"}`, "tag: is required"},
		{"image", `{"id":"x","tag":"  ","new_template_name":"n"}`, "tag: is required"},
		{"image", `{"id":"x","tag":"a\nb","new_template_name":"n"}`, "tag: must not contain control characters"},
		{"image", `{"id":"x","tag":"` + strings.Repeat("x", 256) +
			`","new_template_name":"n"}`, "tag: must have at most 255 bytes"},
		{"image", `{"id":"x","tag":"t"}`, "new_template_name: is required unless target_vm_id is given"},
		{
			"image", `{"id":"x","tag":"t","new_template_name":"","target_vm_id":null}`,
			"new_template_name: is required unless target_vm_id is given",
		},
		{"image", `{"id":"x","tag":"t","new_template_name":" "}`, "new_template_name: must not consist of spaces"},
		{"image", `{"id":"x","tag":"t","new_template_name":"` + strings.Repeat("x", 256) +
			`"}`, "new_template_name: must have at most 255 bytes"},
		{"image", `{` + ok + `,"description":"` + strings.Repeat("x", 4097) +
			`"}`, "description: must have at most 4096 bytes"},
		{"image", `{` + ok + `,"description":5}`, "description: must be a string"},
		{"image", `{` + ok + `,"suspend":"perhaps"}`, "suspend: must be true or false"},
		{"image", `{` + ok + `,"script":5}`, "script: must be a string"},
		{"image", `{` + ok + `,"script":"` + strings.Repeat("AAAA", 90000) +
			`"}`, "script: must have at most 262144 bytes when decoded"},
		{"image", `{` + ok + `,"revert_before_push":true}`, "revert_before_push: requires target_vm_id"},
		{"image", `{` + ok + `,"revert_before_push":2}`, "revert_before_push: must be true or false"},
		{"image", `{` + ok + `,"do_suspend_sanity_test":"x"}`, "do_suspend_sanity_test: must be true or false"},
		{"image", `{` + ok + `,"cancel_on_script_failure":"x"}`, "cancel_on_script_failure: must be true or false"},
		{"image", `[`, "The request body is not a JSON object: unexpected end of JSON input (at byte 1)"},
		{"rpc/vm/restart", `{}`, "instance_id: is required"},
		{
			"rpc/vm/restart", `{"instance_id":"x","vnc_password":"123456789"}`,
			"vnc_password: must have 1 to 8 bytes, which is the limit of VNC",
		},
		{"rpc/vm/restart", `{"instance_id":"x","usb_device":5}`, "usb_device: must be a string"},
	} {
		a := c.call("POST", "/api/v1/"+tc.path, tc.body)
		if a.code != http.StatusBadRequest || a.Status != "FAIL" || a.Message != tc.message {
			t.Errorf("%s: answer %d %s %q, want %q", tc.body[:min(len(tc.body), 120)], a.code, a.Status, a.Message,
				tc.message)
		}
	}
	for query, message := range map[string]string{
		"limit=0": "limit: must be an integer between 1 and 10000",
		"after=x": "after: must be the ID of a save request",
	} {
		if a := c.call("GET", "/api/v1/image?"+query, ""); a.code != http.StatusBadRequest || a.Message != message {
			t.Errorf("%s: %d %q", query, a.code, a.Message)
		}
	}
	want(t, "requests", string(c.call("GET", "/api/v1/image", "").Body), "[]")
}

func TestSaveAndRestartRefusals(t *testing.T) {
	c := newCloud(t)
	o := c.join().started("")
	waiting := c.start("") // it was placed, but its node has not reported it
	unknown := "99999999-2222-4333-8444-555555555555"
	for _, tc := range []struct{ method, path, body, message string }{
		{"POST", "image", `{"id":"` + unknown + `","tag":"t","new_template_name":"n"}`, "Not found"},
		{"POST", "image", `{"id":"no id","tag":"t","new_template_name":"n"}`, "Not found"},
		{"POST", "image", `{"id":"` + unknown + `","tag":"t","new_template_name":"n","script":"***"}`, "Not found"},
		{"POST", "image", `{"id":"` + o.InstanceID + `","tag":"t","target_vm_id":"` + unknown + `"}`, "Not found"},
		{"POST", "image", `{"id":"` + o.InstanceID + `","tag":"t","target_vm_id":"base"}`, "Not found"},
		{"POST", "image", `{"id":"` + o.InstanceID + `","tag":"v1+x","target_vm_id":"` + templateID +
			`"}`, "Template base already has the tag v1+x"},
		{
			"POST", "image", `{"id":"` + waiting + `","tag":"t","new_template_name":"n"}`,
			"Instance " + waiting + " cannot be saved: its state is Scheduling, and it must be Started",
		},
		{"GET", "image?id=" + unknown, "", "Not found"},
		{"GET", "image?id=x/../y", "", "Not found"},
		{"POST", "rpc/vm/restart", `{"instance_id":"` + unknown + `"}`, "Not found"},
		{"POST", "rpc/vm/restart", `{"instance_id":"` + o.InstanceID +
			`","usb_device":"u"}`, "usb_device u cannot be attached: node n1 does not offer this device"},
	} {
		a := c.call(tc.method, "/api/v1/"+tc.path, tc.body)
		if a.code != http.StatusOK || a.Status != "FAIL" || a.Message != tc.message || a.Body != nil {
			t.Errorf("%s %s %s: %d %s %q body %s", tc.method, tc.path, tc.body, a.code, a.Status, a.Message, a.Body)
		}
	}
}

func TestRestartByREST(t *testing.T) {
	c := newCloud(t)
	n := c.join()
	o := n.started("")
	a := c.call("POST", "/api/v1/rpc/vm/restart",
		`{"instance_id":"`+o.InstanceID+`","usb_device":"1-2","vnc_password":""}`)
	want(t, "answer", a, answer{code: 200, Status: "OK"})
	r := n.order(api.OrderRestart)
	location := "1-2"
	want(t, "order", r.Restart, &api.RestartOrder{USB: &location})
	n.say(o, &api.TaskStatus{ID: r.Task, Stage: api.TaskDone})
	var inst api.Instance
	c.call("GET", "/api/v1/vm?id="+o.InstanceID, "").into(t, &inst)
	want(t, "instance",
		[]any{inst.InstanceState, inst.USBDevice, inst.MACAddress, inst.VMInfo.VNCPort, inst.VMInfo.VNC},
		[]any{"Started", "1-2", "52:54:00:00:00:01", 5901, "vnc://10.1.1.1:5901"})
}

func TestMachineParameters(t *testing.T) {
	c := newCloud(t)
	n := c.join()
	for fields, machine := range map[string]api.Machine{
		`"vcpu":1`:                                {CPUs: 1},
		`"vcpu":"512"`:                            {CPUs: 512},
		`"vram":64`:                               {MemoryMB: 64},
		`"disk":{"size":"80G"}`:                   {DiskBytes: 80 << 30},
		`"disk":{"size":"64T"}`:                   {DiskBytes: 64 << 40},
		`"disk":{"size":"5M"}`:                    {DiskBytes: 5 << 20},
		`"disk":{"size":"4096K"}`:                 {DiskBytes: 4 << 20},
		`"hw_uuid":"` + templateID + `"`:          {HardwareUUID: templateID},
		`"hw_serial":"C02 X"`:                     {Serial: "C02 X"},
		`"video_controller":"fbuf"`:               {Video: "fbuf"},
		`"video_controller":"pg"`:                 {Video: "pg"},
		`"network_mode":"shared"`:                 {Network: "shared"},
		`"network_mode":"nat"`:                    {Network: "nat"},
		`"network_mode":"host"`:                   {Network: "host"},
		`"network_mode":"bridge"`:                 {Network: "bridge"},
		`"network_mode":"disconnected"`:           {Network: "disconnected"},
		`"network_local":"forceOn"`:               {NetworkLocal: "forceOn"},
		`"network_local":"forceOff"`:              {NetworkLocal: "forceOff"},
		`"vnc_password":"12345678"`:               {VNCPassword: "12345678"},
		`"usb_device":"phone"`:                    {USB: "phone", USBDevice: "1-2"},
		`"network_mode":"bridge","vlan_tag":"20"`: {Network: "bridge", VLAN: 20},
		`"disk":{"size":"1G","skip_container_resize":true},"vcpu":2`: {DiskBytes: 1 <<
			30, KeepFileSys: true, CPUs: 2},
		`"vcpu":null,"vram":"","disk":null,"hw_uuid":"","vnc_password":""`:      {},
		`"network_mode":null,"network_local":"","usb_device":"","hvapic":""`:    {},
		`"video_controller":"","hw_serial":null,"mac_address":"","vlan_tag":""`: {},
	} {
		o := n.started(`,` + fields)
		got := api.Machine{}
		if o.Start.Machine != nil {
			got = *o.Start.Machine
		}
		want(t, fields, got, machine)
		if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
			t.Fatal(err)
		}
		n.order(api.OrderTerminate)
		n.no++
		if _, err := c.Link.Report(t.Context(),
			n.cred, api.Report{NodeID: n.id, BootID: "boot", Statuses: []api.InstanceStatus{
				{InstanceID: o.InstanceID, Claim: o.Claim, No: n.no, Phase: api.PhaseTerminated},
			}}); err != nil {
			t.Fatal(err)
		}
		n.held = nil
	}
}

// TestSecretsStayInside starts, saves and restarts with secrets, and searches for them in all output for
// clients and operators.
func TestSecretsStayInside(t *testing.T) {
	c := newCloud(t)
	n := c.join()
	encoded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	secrets := []string{
		"start-secret", "vnc-one", "save-secret", "vnc-two", "bad-secret", encoded("start-secret"),
		encoded("save-secret"),
	}
	o := n.started(`,"startup_script":"` + encoded("start-secret") +
		`","script_monitoring":true,"vnc_password":"vnc-one"`)
	c.call("POST", "/api/v1/vm", `{"vmid":"nothing","vnc_password":"vnc-one","startup_script":"`+
		encoded("start-secret")+`"}`)
	c.call("POST", "/api/v1/vm", `{"vmid":"nothing","vnc_password":"vnc-one and more","startup_script":"bad-secret"}`)
	c.call("POST", "/api/v1/rpc/vm/restart", `{"instance_id":"`+o.InstanceID+`","vnc_password":"vnc-two and more"}`)
	c.call("POST", "/api/v1/rpc/vm/restart", `{"instance_id":"`+o.InstanceID+`","vnc_password":"vnc-two"}`)
	r := n.order(api.OrderRestart)
	want(t, "password in the order", *r.Restart.VNCPassword, "vnc-two")
	lists := func() (all string) {
		for _, path := range []string{"vm", "vm?id=" + o.InstanceID, "image", "node", "status"} {
			all += string(c.call("GET", "/api/v1/"+path, "").Body)
		}
		return all
	}
	text := lists()
	n.say(o, &api.TaskStatus{ID: r.Task, Stage: api.TaskDone})
	id := c.save(o.InstanceID, `,"new_template_name":"x","script":"`+encoded("save-secret")+`"`)
	text += lists() + string(c.call("GET", "/api/v1/image?id="+id, "").Body)
	s := n.order(api.OrderSave)
	n.say(o, &api.TaskStatus{ID: s.Task, Stage: api.TaskFailed})
	c.save(o.InstanceID, `,"new_template_name":"x","script":"bad-secret!"`)
	text += lists() + c.logged()
	for _, password := range []string{"vnc-one", "vnc-two"} { // callers that may open the console see it
		login := "vnc://:" + password + "@"
		if !strings.Contains(text, login) {
			t.Errorf("the screen is shown without its password %s", password)
		}
		text = strings.ReplaceAll(text, login, "")
	}
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%q can be read", secret)
		}
	}
	if !strings.Contains(text, "request failed") || !strings.Contains(text, "[redacted]") {
		t.Error("the test looks in the wrong places")
	}
}

// TestLargeOutput: the output of a guest has no bound in JSON that a report could fail
// on indefinitely.
func TestLargeOutput(t *testing.T) {
	c := newCloud(t)
	n := c.join()
	o := n.started("")
	id := c.save(o.InstanceID, `,"new_template_name":"x"`)
	s := n.order(api.OrderSave)
	noise := strings.Repeat("\x00", 1<<20)
	report, _ := json.Marshal(api.Report{Protocol: 1, NodeID: n.id, BootID: "boot", Statuses: []api.InstanceStatus{{
		InstanceID: o.InstanceID, Claim: o.Claim, No: n.no + 1, Phase: api.PhaseRunning,
		Task: &api.TaskStatus{
			ID: s.Task, Stage: api.TaskSaving, Script: &api.ScriptStatus{Stdout: noise, Stderr: noise},
		},
	}}})
	want(t, "report", c.call("POST", api.PathReport, string(report), "Authorization", "Bearer "+n.cred).Status, "OK")
	image, _ := c.image(id)
	if image.ScriptResult == nil || image.ScriptResult.Stdout != noise || image.ScriptResult.Stderr != noise {
		t.Error("the output is not whole")
	}
}
