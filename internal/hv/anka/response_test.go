package anka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The golden files of the imitation of anka name the source of each shape.
const goldenDir = "../../../test/fakes/anka/testdata"

// goldenResponse returns the output in a golden file, with values for its placeholders.
func goldenResponse(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(goldenDir, name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	_, output, _ := strings.Cut(string(text), "\n")
	return []byte(strings.NewReplacer("<<[0-9]+>>", "4711", "127.64.<<[0-9.]+>>", "192.168.64.7",
		"<<1[0-9]{4}>>", "10022").Replace(output))
}

func TestParseResponse(t *testing.T) {
	parse := func(name string, into any) {
		t.Helper()
		body, err := parseResponse("show", goldenResponse(t, name))
		if err == nil {
			err = decode("show", body, into)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var vm shownVM
	parse("show-running", &vm)
	if vm.Status != statusRunning || vm.PID != 4711 || vm.IP != "192.168.64.7" || vm.HardDrive != 100<<30 {
		t.Errorf("VM %+v", vm)
	}
	var network shownNetwork
	parse("show-network", &network)
	if len(network.Rules) != 1 || network.Rules[0].HostPort != 10022 || network.MAC != "52:54:00:12:34:56" {
		t.Errorf("network %+v", network)
	}
	var license shownLicense
	parse("license", &license)
	if license != (shownLicense{"com.veertu.anka.entplus", "valid", "17-aug-2099"}) {
		t.Errorf("license %+v", license)
	}
	var list []shownVM
	parse("list-empty", &list)
	if list != nil {
		t.Errorf("an empty list is %v", list)
	}
	var id string
	parse("clone", &id)
	if !strings.HasPrefix(id, "<<") { // the placeholder of the second line
		t.Errorf("of several objects, %q was read", id)
	}
}

func TestParseFailures(t *testing.T) {
	for name, code := range map[string]int{"not-found": codeNotFound, "name-taken": codeNameTaken, "start-limit": 1} {
		_, err := parseResponse("start", goldenResponse(t, name))
		if !hasCode(err, code) || !strings.Contains(err.Error(), "anka start: code ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for output, says := range map[string]string{
		"":                          "which is not the JSON",
		"Traceback":                 "which is not the JSON",
		`{"status":"OK"`:            "which is not the JSON",
		`{"status":"MAYBE"}`:        "unknown status",
		`{"status":"OK"}` + "\nend": "which is not the JSON",
	} {
		if _, err := parseResponse("list", []byte(output)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", output, err, says)
		}
	}
	if err := decode("show", []byte(`[]`), &shownVM{}); err == nil {
		t.Error("a list was read as a VM")
	}
	long := `{"status":"ERROR","code":1,"message":"` + strings.Repeat("é\\u001b", 1000) + `"}`
	if _, err := parseResponse("list", []byte(long)); err == nil || len(err.Error()) > 4*maxMessageBytes ||
		strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a long message: %.100q", err)
	}
}

// FuzzResponse: whatever is printed, the result is a body or an error with a bounded text.
func FuzzResponse(f *testing.F) {
	for _, name := range []string{"clone", "show-running", "not-found"} {
		f.Add(goldenResponse(f, name))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		body, err := parseResponse("show", output)
		if err != nil && len(err.Error()) > 4*maxMessageBytes+200 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		var vm shownVM
		if err == nil && decode("show", body, &vm) == nil && len(vm.Status) > len(output) {
			t.Errorf("%+v", vm)
		}
	})
}
