package config

import (
	"strings"
	"testing"
)

// TestUnknownVariables: a variable that looks like a setting and is none of the service's is
// refused, with the nearest name, or with whose setting it is.
func TestUnknownVariables(t *testing.T) {
	for _, tc := range []struct {
		table Table
		vars  string // of the environment, separated by spaces
		want  string // in the error; "": none
	}{
		{
			ControllerTable, "SVC_LISTEN_ADR=:1",
			"unknown setting SVC_LISTEN_ADR; did you mean SVC_LISTEN_ADDR? (from the environment)",
		},
		{ControllerTable, "SVC_ENABLE_AUHT=true", "did you mean SVC_ENABLE_AUTH?"},
		{ControllerTable, "SVC_STANDALON=true", "did you mean SVC_STANDALONE?"},
		{RegistryTable, "SVC_ROOT_TOKEN_FIL=/x", "did you mean SVC_ROOT_TOKEN_FILE?"},
		{RegistryTable, "SVC_BASEPATH=/x", "did you mean SVC_BASE_PATH?"},
		{
			RegistryTable, "SVC_XYZZY_PLUGH_WALDO_FRED=1",
			"unknown setting SVC_XYZZY_PLUGH_WALDO_FRED; see --print-config",
		},
		{
			RegistryTable, "SVC_QUEUE_ADDR=:1",
			"SVC_QUEUE_ADDR is a setting of the controller and has no effect here; remove it (from the environment)",
		},
		{ControllerTable, "SVC_BASE_PATH=/x", "SVC_BASE_PATH is a setting of the registry"},
		{ControllerTable, "SVC_LISTEN_ADDR_FILE=/x", "unknown setting SVC_LISTEN_ADDR_FILE"},
		{
			ControllerTable, "SVC_BACKEND_S3_BUCKET=b", `SVC_BACKEND_S3_BUCKET="b" must be a bucket name`,
		},

		{ControllerTable, "PATH=/bin SVC_LISTEN_ADDR=:1 SVC_ROOT_TOKEN_FILE=/x SVC_ENABLE_AUTHORIZATION=true", ""},
		{ControllerTable, "SVC_CONTROLLER=http://x SVC_CLIENT_ROOT_TOKEN_FILE=/x SVC_CONTEXT=c", ""},
		{ControllerTable, "SVC_LISTEN_ADR= SVC_BASE_PATH=", ""},
		{ControllerTable, "SVC_BACKEND_TYPE=disk SVC_VM_LIST_CACHE_TTL=30s", ""},
		{RegistryTable, "SVC_VM_LIST_CACHE_TTL=30s SVC_ENABLE_REGISTRY_AUTHORIZATION=false", ""},
		{sample, "", ""},
	} {
		vars, env := strings.Fields(tc.vars), map[string]string{}
		for _, v := range vars {
			key, text, _ := strings.Cut(v, "=")
			if strings.HasPrefix(key, "SVC_BACKEND") {
				env[key] = text
			}
		}
		_, err := Load(tc.table, Sources{Env: environment(env), Vars: vars})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.vars, err, tc.want)
		}
	}
	if _, err := Load(ControllerTable,
		Sources{File: writeFile(t, "SVC_LISTEN_ADDR=:1\nSVC_BASE_PATH=/x\n")}); err == nil ||
		!strings.Contains(err.Error(), "line 2: SVC_BASE_PATH is a setting of the registry") {
		t.Errorf("in a file: %v", err)
	}
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}} {
		if got := editDistance(tc.a, tc.b); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
