package usb

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// bus is a host's tree of devices.
type bus struct {
	t    *testing.T
	tree string
}

func newBus(t *testing.T) bus {
	return bus{t, filepath.Join(t.TempDir(), "devices")}
}

// plug adds a device.
func (b bus) plug(location string, attributes map[string]string) {
	b.t.Helper()
	dir := filepath.Join(b.tree, location)
	err := os.MkdirAll(dir, 0o700)
	for name, text := range attributes {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b bus) unplug(location string) {
	b.t.Helper()
	if err := os.RemoveAll(filepath.Join(b.tree, location)); err != nil {
		b.t.Fatal(err)
	}
}

var (
	phone = map[string]string{
		"idVendor": "05AC", "idProduct": "12a8", "manufacturer": "Apple Inc.",
		"product": "iPhone\x1b[2J", "serial": "0001", "bDeviceClass": "00",
	}
	key = map[string]string{"idVendor": "1050", "idProduct": "0407", "product": "Key"}
	hub = map[string]string{"idVendor": "1d6b", "idProduct": "0002", "bDeviceClass": "09"}
)

func TestRead(t *testing.T) {
	b := newBus(t)
	if _, err := ReadDevices(b.tree); farm.CodeOf(err) != farm.CodeRefused ||
		!strings.Contains(err.Error(), "claims require Linux") {
		t.Errorf("no tree: %v", err)
	}
	b.plug("3-1.2", phone)
	b.plug("1-1", hub)
	b.plug("usb1", hub)                // the controller of a bus
	b.plug("3-1.2:1.0", phone)         // an interface of a device
	b.plug("2-1", map[string]string{}) // on its way out
	got, err := ReadDevices(b.tree)
	want := []Device{
		{Location: "1-1", ID: "1d6b:0002", Hub: true},
		{Location: "3-1.2", ID: "05ac:12a8", ProductName: "Apple Inc. iPhone[2J", Serial: "0001"},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestClaims(t *testing.T) {
	c := At(filepath.Join(t.TempDir(), "usb.json"))
	if list, err := c.List(); len(list) != 0 || err != nil {
		t.Errorf("no file: %v, %v", list, err)
	}
	for _, in := range [][2]string{
		{"3-1.2", "phone"}, {"05AC:12A8", "phone"}, {"emulated:tablet", ""}, {" 1-1 ", "old"}, {"1-1", "My key.2"},
	} {
		if _, err := c.Add(in[0], in[1]); err != nil {
			t.Fatal(err)
		}
	}
	want := []Claim{{"05ac:12a8", "phone"}, {"1-1", "My key.2"}, {"3-1.2", "phone"}, {"emulated:tablet", ""}}
	if got, err := c.List(); !cmp.Equal(got, want) || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for device, name := range map[string]string{
		"": "", "1": "", "usb1": "", "1-2:1.0": "", "0-1": "", "1-0": "", "emulated:toaster": "", "05ac": "",
		"05ac:12a8:1": "", "../1-1": "",
		"1-1": " ", "1-2": "-x", "1-3": "1-4", "1-5": strings.Repeat("x", 65), "1-6": "a\nb", "1-7": "a/b",
	} {
		if got, err := c.Add(device, name); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("claimed %q as %q: %+v, %v", device, name, got, err)
		}
	}
	if gone, err := c.Remove("phone"); len(gone) != 2 || err != nil {
		t.Errorf("released %+v, %v", gone, err)
	}
	if gone, err := c.Remove("1-1"); len(gone) != 1 || err != nil {
		t.Errorf("released %+v, %v", gone, err)
	}
	if _, err := c.Remove("1-1"); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("released twice: %v", err)
	}
	if gone, err := c.Remove("emulated:tablet"); len(gone) != 1 || err != nil {
		t.Errorf("released %+v, %v", gone, err)
	}
	if got, err := c.List(); len(got) != 0 || err != nil {
		t.Errorf("left %+v, %v", got, err)
	}
}

func TestClaimsAreBounded(t *testing.T) {
	c := At(filepath.Join(t.TempDir(), "usb.json"))
	for i := range MaxClaims {
		if _, err := c.Add(fmt.Sprintf("%d-%d", i/100+1, i%100+1), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Add("9-9", ""); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("one more: %v", err)
	}
	if _, err := c.Add("1-1", "again"); err != nil {
		t.Error(err)
	}
}

// Concurrent commands lose no claim: one that cannot write returns an error.
func TestConcurrentClaims(t *testing.T) {
	c := At(filepath.Join(t.TempDir(), "usb.json"))
	var mu sync.Mutex
	var wg sync.WaitGroup
	added := 0
	for i := range 20 {
		wg.Go(func() {
			_, err := c.Add(fmt.Sprintf("1-%d", i+1), "")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				added++
			} else if farm.CodeOf(err) != farm.CodeConflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if list, err := c.List(); len(list) != added || added == 0 || err != nil {
		t.Errorf("%d of %d, %v", len(list), added, err)
	}
}

func TestDamagedClaims(t *testing.T) {
	file := filepath.Join(t.TempDir(), "usb.json")
	for _, text := range []string{
		"", "{", "[]", `{"claims":[{"device":"x"}]}`, `{"claims":[{"device":"1-1","name":"\u0001"}]}`, `{"claim":[]}`,
		`{"claims":[` + strings.Repeat(`{"device":"1-1"},`, MaxClaims) + `{"device":"1-1"}]}`,
		strings.Repeat(" ", maxFile) + "{}",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if list, err := At(file).List(); err == nil {
			t.Errorf("%.40q: %+v", text, list)
		}
		if _, err := At(file).Add("1-2", ""); err == nil { // an unreadable file is not overwritten
			t.Errorf("%.40q was overwritten", text)
		}
	}
}

func FuzzClaims(f *testing.F) {
	f.Add([]byte(`{"claims":[{"device":"1-2.3","name":"phone"},{"device":"05AC:12a8"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := parseClaims(raw)
		for _, c := range list {
			if again, wrong := c.canonical(); wrong != nil || again != c || err != nil {
				t.Errorf("%q: %+v, %v, %v", raw, c, wrong, err)
			}
		}
	})
}

func TestOffer(t *testing.T) {
	dir := t.TempDir()
	b := newBus(t)
	b.plug("3-1.2", phone)
	b.plug("3-1.3", phone)
	b.plug("1-1", hub)
	claims := At(filepath.Join(dir, "usb.json"))
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		o := NewAvailableDevices(claims, b.tree, slog.New(slog.NewTextHandler(&log, nil)))
		want := func(list ...api.USBDevice) {
			t.Helper()
			if d := cmp.Diff(list, o.Available()); d != "" {
				t.Errorf("offered (-want +got):\n%s", d)
			}
		}
		claim := func(device, name string) {
			t.Helper()
			if _, err := claims.Add(device, name); err != nil {
				t.Fatal(err)
			}
		}
		want()
		claim("1-1", "hub") // which is never offered
		want()
		claim("05ac:12a8", "phone")
		want(api.USBDevice{Name: "phone", Location: "3-1.2"}, api.USBDevice{Name: "phone", Location: "3-1.3"})
		claim("3-1.3", "")
		claim("emulated:tablet", "pad")
		want(api.USBDevice{Name: "phone", Location: "3-1.2"}, api.USBDevice{Location: "3-1.3"},
			api.USBDevice{Name: "pad", Location: "emulated:tablet"})
		b.unplug("3-1.2")
		b.plug("3-1.4", key)
		time.Sleep(listInterval)
		want(api.USBDevice{Location: "3-1.3"}, api.USBDevice{Name: "pad", Location: "emulated:tablet"})
		if _, err := claims.Remove("05ac:12a8"); err != nil {
			t.Fatal(err)
		}
		claim("1050:0407", "key")
		want(api.USBDevice{Location: "3-1.3"}, api.USBDevice{Name: "key", Location: "3-1.4"},
			api.USBDevice{Name: "pad", Location: "emulated:tablet"})
		if err := os.WriteFile(claims.path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		want()
		want()
		if n := strings.Count(log.String(), "reading the USB claims failed"); n != 1 {
			t.Errorf("said %d times: %s", n, log.String())
		}
		if err := os.Remove(claims.path); err != nil {
			t.Fatal(err)
		}
		want()
	})
}
