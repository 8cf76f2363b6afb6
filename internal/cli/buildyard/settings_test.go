package buildyard

import (
	"bytes"
	"strings"
	"testing"
)

// TestSettingsOfTheEnvironment: what a service cannot do as asked fails its start in one line.
func TestSettingsOfTheEnvironment(t *testing.T) {
	for _, tc := range []struct{ args, env, want string }{
		{
			"up", "SVC_LISTEN_ADR=:8090",
			"buildyard: unknown setting SVC_LISTEN_ADR; did you mean SVC_LISTEN_ADDR? (from the environment)",
		},
		{
			"controller", "SVC_BASE_PATH=/x",
			"buildyard: SVC_BASE_PATH is a setting of the registry and has no effect here; remove it (from " +
				"the environment)",
		},
		{"registry", "SVC_QUEUE_ADDR=:8091", "SVC_QUEUE_ADDR is a setting of the controller"},
		{"up --print-config", "SVC_LISTEN_ADR=:8090", "did you mean SVC_LISTEN_ADDR?"},
		{"up", "SVC_BACKEND_S3_BUCKET=bucket", "SVC_BACKEND_S3_BUCKET is set, but SVC_BACKEND_TYPE is disk"},
		{
			"controller", "SVC_STANDALONE=false",
			"SVC_STANDALONE=false requires an external etcd; set its endpoints with SVC_ETCD_ENDPOINTS",
		},
		{
			"controller --etcd-endpoints http://192.0.2.1:2379", "SVC_STANDALONE=true",
			"SVC_STANDALONE=true requires the embedded store, but SVC_ETCD_ENDPOINTS sets an external etcd",
		},
		{"controller", "SVC_STANDALONE=maybe", `SVC_STANDALONE="maybe" must be true or false`},
	} {
		t.Run(tc.args+" "+tc.env, func(t *testing.T) {
			key, text, _ := strings.Cut(tc.env, "=")
			t.Setenv(key, text)
			var errs bytes.Buffer
			args := strings.Fields(tc.args)
			code := Main(t.Context(), args, Streams{Out: &bytes.Buffer{}, Err: &errs})
			if code == 0 || !strings.Contains(errs.String(), tc.want) || strings.Count(errs.String(), "\n") > 2 {
				t.Errorf("exit %d, said %q; want %q", code, errs.String(), tc.want)
			}
		})
	}
}

// TestStandaloneIsHonored: true starts the embedded store.
func TestStandaloneIsHonored(t *testing.T) {
	s, stop := startController(t, t.TempDir(), true,
		map[string]string{"standalone": "true", "vm-list-cache-ttl": "30s"})
	defer stop()
	if code := (asks{t: t}).code("GET", s.URL()+"/readyz"); code != 200 {
		t.Errorf("readyz: %d", code)
	}
}
