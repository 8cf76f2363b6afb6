package controllerrest_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/farm"
)

// eventually repeats a request until its response has a body.
func (c *cloud) eventually(path, body string) {
	c.t.Helper()
	a := answer{}
	for range 200 {
		if a = c.call("GET", path, ""); string(a.Body) == body {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Errorf("%s answers %s, want %s", path, a.Body, body)
}

func TestDevicesAndVLANsByREST(t *testing.T) {
	c := newCloud(t)
	c.eventually("/api/v1/usb", "{}")
	c.eventually("/api/v1/vlan", "[]")
	n := c.join()
	c.eventually("/api/v1/usb", `{"phone":{"available":1,"busy":0}}`)
	c.eventually("/api/v1/vlan", `["20","100"]`)
	o := n.started(`,"usb_device":"phone","network_mode":"bridge","vlan_tag":"100"`)
	c.eventually("/api/v1/usb", `{"phone":{"available":0,"busy":1}}`)
	var inst api.Instance
	c.call("GET", "/api/v1/vm?id="+o.InstanceID, "").into(t, &inst)
	want(t, "instance", []string{inst.USBDevice, inst.VLAN}, []string{"phone", "100"})
	var nodes []struct {
		USB   []api.NodeUSB `json:"usb_devices"`
		VLANs []string      `json:"vlans"`
	}
	c.call("GET", "/api/v1/node", "").into(t, &nodes)
	want(t, "node devices", nodes[0].USB, []api.NodeUSB{{Name: "phone", Location: "1-2", Busy: true}})
	want(t, "node VLANs", nodes[0].VLANs, []string{"20", "100"})
	waits := c.start(`,"usb_device":"1-2"`)
	for range 500 {
		if c.call("GET", "/api/v1/vm?id="+waits, "").into(t, &inst); inst.Message != "" {
			break // it was looked at
		}
		time.Sleep(10 * time.Millisecond)
	}
	want(t, "message", inst.Message, "no node has a free USB device 1-2 (1 node: 1 with the USB device taken)")
}

// managing has a controller manage few addresses.
func managing() (o controller.Options) {
	o.ManageMACs = true
	o.MACRange, _ = farm.ParseMACRange("52:54:00:00:00:01-52:54:00:00:00:04")
	return o
}

func TestMACAddressesAreNotManaged(t *testing.T) {
	c := newCloud(t)
	for _, call := range [][2]string{{"GET", "?count"}, {"GET", "?limit=5"}, {"PUT", ""}, {"DELETE", ""}} {
		a := c.call(call[0], "/api/v1/macaddr"+call[1], "")
		want(t, call[0], a, answer{
			code: http.StatusOK, Status: "FAIL",
			Message: "MAC addresses are not managed by this controller: set SVC_MANAGE_MAC_ADDRESSES " +
				"and SVC_MAC_ADDR_RANGE",
		})
	}
}

func TestMACAddressesByREST(t *testing.T) {
	c := newCloudWith(t, managing())
	n := c.join()
	o := n.started(`,"mac_address":"52-54-00-00-00-03"`)
	item := func(last, instance string) string {
		raw, _ := json.Marshal(api.MACAddress{MACAddress: "52:54:00:00:00:0" +
			last, InUse: instance != "", InstanceID: instance})
		return string(raw)
	}
	for query, body := range map[string]string{
		"?count": "4", "?count=true": "4", "?count=1": "4", "?in_use": "1", "?in_use=1": "1", "?in_use=true": "1",
		"?in_use=false": "3", "?count&in_use": "1",
		"?limit=2":                            "[" + item("1", "") + "," + item("2", "") + "]",
		"?limit=9&last=52:54:00:00:00:02":     "[" + item("3", o.InstanceID) + "," + item("4", "") + "]",
		"?limit=9&last=525400000004":          "[]",
		"?limit=9&in_use":                     "[" + item("3", o.InstanceID) + "]",
		"?limit=1&in_use=true&count":          "[" + item("3", o.InstanceID) + "]",
		"?limit=2&in_use=0&last=525400000001": "[" + item("2", "") + "," + item("4", "") + "]",
	} {
		if a := c.call("GET", "/api/v1/macaddr"+query, ""); string(a.Body) != body || a.Status != "OK" {
			t.Errorf("%s: %s %q %s, want %s", query, a.Status, a.Message, a.Body, body)
		}
	}
	if a := c.call("GET", "/api/v1/macaddr",
		`{"limit":"1","in_use":true}`); string(a.Body) != "["+item("3", o.InstanceID)+"]" {
		t.Errorf("in the body: %+v", a)
	}
	for query, message := range map[string]string{
		"":                         "count: one of count, in_use and limit is required",
		"?count=false":             "count: one of count, in_use and limit is required",
		"?in_use=perhaps":          "in_use: must be true or false",
		"?limit=0":                 "limit: must be an integer between 1 and 10000",
		"?limit=10001":             "limit: must be an integer between 1 and 10000",
		"?limit=2&last=x":          "last: must be six pairs of hexadecimal digits with colons between them",
		"?count&last=525400000001": "last: requires limit",
	} {
		a := c.call("GET", "/api/v1/macaddr"+query, "")
		want(t, query, a, answer{code: http.StatusBadRequest, Status: "FAIL", Message: message})
	}
	var inst api.Instance
	c.call("GET", "/api/v1/vm?id="+o.InstanceID, "").into(t, &inst)
	want(t, "order", o.Start.Machine, &api.Machine{MAC: "52:54:00:00:00:03"})
	for body, message := range map[string]string{
		`"52:54:00:00:00:05"`: "mac_address 52:54:00:00:00:05 cannot be assigned: it is not in the managed " +
			"addresses (52:54:00:00:00:01-52:54:00:00:00:04)",
		`"52:54:00:00:00:03"`: "mac_address 52:54:00:00:00:03 cannot be assigned: it is in use by instance " +
			o.InstanceID,
	} {
		a := c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`","mac_address":`+body+`}`)
		want(t, body, a, answer{code: http.StatusOK, Status: "FAIL", Message: message})
	}
	want(t, "purge", c.call("DELETE", "/api/v1/macaddr", ""), answer{code: 200, Status: "OK"})
	c.eventually("/api/v1/macaddr?count", "1")
	c.eventually("/api/v1/macaddr?limit=5", "["+item("3", o.InstanceID)+"]")
	want(t, "populate", c.call("PUT", "/api/v1/macaddr", ""), answer{code: 200, Status: "OK"})
	c.eventually("/api/v1/macaddr?count", "4")
}
