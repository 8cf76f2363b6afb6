package config

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

var services = map[string]Table{
	"controller": ControllerTable, "registry": RegistryTable, "client": ClientTable,
	"storage": StorageTable, "sample": sample,
}

// TestTablesAreSound: keys and flags are unique and well formed, every default has
// the form of its kind, and no setting is both built and unbuilt.
func TestTablesAreSound(t *testing.T) {
	flagForm := regexp.MustCompile(`^[a-z][a-z0-9-]*[a-z]$`)
	for name, table := range services {
		seen := map[string]bool{}
		for _, s := range table {
			if seen[s.Key] || seen[s.Flag] || s.FileFlag != "" && seen[s.FileFlag] {
				t.Errorf("%s: %s, --%s or --%s is declared twice", name, s.Key, s.Flag, s.FileFlag)
			}
			seen[s.Key], seen[s.Flag], seen[s.FileFlag] = true, true, true
			if s.FileFlag != "" && (!s.Kind.isSecret() || !flagForm.MatchString(s.FileFlag)) {
				t.Errorf("%s: --%s is of no secret, or not well formed", name, s.FileFlag)
			}
			prefixed := strings.HasPrefix(s.Key, "SVC_") || strings.HasPrefix(s.Key, "AWS_")
			if !prefixed || !keyPattern.MatchString(s.Key) || !flagForm.MatchString(s.Flag) || s.Help == "" {
				t.Errorf("%s: %+v is not well formed", name, s)
			}
		}
		if _, err := Load(table, Sources{}); err != nil {
			t.Errorf("%s: the defaults do not load: %v", name, err)
		}
	}
}

// TestContractDefaults holds the defaults that operators know.
func TestContractDefaults(t *testing.T) {
	withAuth := Sources{Env: environment(map[string]string{EnableAuth: "true"})}
	v := mustLoad(t, ControllerTable, withAuth)
	for key, want := range map[string]time.Duration{
		InstanceTimeOut: time.Minute, NodeActiveTimeout: 2 * time.Minute, InstanceActiveTimeout: 2 * time.Minute,
		GracefulShutdown: 10 * time.Second, RequestTimeout: 15 * time.Second,
		StartTimeout: 90 * time.Second, PullTimeout: 30 * time.Minute, PushTimeout: time.Hour,
	} {
		if got := v.Duration(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	for key, want := range map[string]string{
		ListenAddr: ":8090", RegistryListenAddress: ":8089", VMNamePrefix: "mgmtManaged-", LogLevel: "info",
		Registry: "", LocalRegistry: "", PushRegistry: "", LicenseFile: "", LicenseAuthority: "",
		MetricsPath:     "/metrics",
		LocalListenAddr: NoAddr, Standalone: "",
	} {
		if got := v.String(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if v.Int(UnknownVMThreshold) != 30 || v.Bool(RunRegistry) || v.List(EtcdEndpoints) != nil {
		t.Error("another default is wrong")
	}
	r := mustLoad(t, RegistryTable, withAuth)
	for _, v := range []*Values{v, r} {
		if v.Bool(EnableMetrics) || v.Int(MetricsPort) != 2112 || v.String(MetricsPath) != "/metrics" {
			t.Error("the defaults of the metrics are wrong")
		}
	}
	if r.String(ListenAddr) != ":8089" || r.String(LocalListenAddr) != "127.0.0.1:8085" ||
		r.String(BasePath) != v.String(RegistryBasePath) {
		t.Error("the registry's defaults are wrong")
	}
}

// TestDefaultsWithoutAuth: while authentication is off, the defaults are addresses that other
// machines cannot reach; what was given stays.
func TestDefaultsWithoutAuth(t *testing.T) {
	for _, tc := range []struct {
		table    Table
		env      map[string]string
		key      string
		want     string
		wantFrom Origin
	}{
		{ControllerTable, nil, ListenAddr, "127.0.0.1:8090", FromDefault},
		{ControllerTable, nil, RegistryListenAddress, "127.0.0.1:8089", FromDefault},
		{ControllerTable, nil, LocalListenAddr, "127.0.0.1:8085", FromDefault},
		{RegistryTable, nil, ListenAddr, "127.0.0.1:8089", FromDefault},
		{RegistryTable, nil, LocalListenAddr, "127.0.0.1:8085", FromDefault},
		{ControllerTable, map[string]string{ListenAddr: ":8090"}, ListenAddr, ":8090", FromEnv},
		{ControllerTable, map[string]string{ListenAddr: ":8090"}, RegistryListenAddress, "127.0.0.1:8089", FromDefault},
		{ControllerTable, map[string]string{EnableAuth: "0"}, ListenAddr, "127.0.0.1:8090", FromDefault},
		{
			ControllerTable,
			map[string]string{EnableAuth: "1", LocalListenAddr: "127.0.0.1:0"},
			LocalListenAddr,
			"127.0.0.1:0", FromEnv,
		},
	} {
		v := mustLoad(t, tc.table, Sources{Env: environment(tc.env)})
		if got := v.String(tc.key); got != tc.want || v.Origin(tc.key) != tc.wantFrom {
			t.Errorf("%v: %s is %q from %s, want %q from %s", tc.env, tc.key, got, v.Origin(tc.key), tc.want,
				tc.wantFrom)
		}
	}
}

// TestLimitsOfLogs: their plain numbers are days and megabytes, and their old names are known.
func TestLimitsOfLogs(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7": 7 * maxTimeout, "7d": 7 * maxTimeout, "36h": 36 * time.Hour,
		"3650": 3650 * maxTimeout, "0": 0, "30m": 0, "3651": 0, "-1": 0, "d": 0, "99999999999999999999": 0,
	} {
		v, err := Load(RegistryTable, Sources{Env: environment(map[string]string{"KEEP_LOGS_FOR": text})})
		if want == 0 && (err == nil || !strings.Contains(err.Error(), "a number of days")) ||
			want > 0 && (err != nil || v.Days(KeepLogs) != want) {
			t.Errorf("KEEP_LOGS_FOR=%s: %v", text, err)
		}
	}
	for text, want := range map[string]int64{"1024": 1 << 30, "4GB": 4 << 30, "1": 1 <<
		20, "1023KB": 0, "0": 0, "x": 0, "1.5": 0} {
		v, err := Load(ControllerTable, Sources{Env: environment(map[string]string{"MAX_LOG_SIZE": text})})
		if want == 0 && (err == nil || !strings.Contains(err.Error(), "a number of MiB")) ||
			want > 0 && (err != nil || v.Megabytes(MaxLogSize) != want) {
			t.Errorf("MAX_LOG_SIZE=%s: %v", text, err)
		}
	}
	v := mustLoad(t, RegistryTable,
		Sources{Env: environment(map[string]string{"SVC_KEEP_LOGS_FOR": "2", "KEEP_LOGS_FOR": "3"}), File: writeFile(t,
			"MAX_LOG_SIZE=5\nKEEP_LOGS_FOR=4\n")})
	if v.Days(KeepLogs) != 2*maxTimeout || v.Megabytes(MaxLogSize) != 5<<20 || v.Origin(MaxLogSize) != FromFile {
		t.Errorf("%s, %d from %s", v.Days(KeepLogs), v.Megabytes(MaxLogSize), v.Origin(MaxLogSize))
	}
	v = mustLoad(t, ControllerTable, Sources{})
	if v.Days(KeepLogs) != 7*maxTimeout || v.Megabytes(MaxLogSize) != 1<<30 || v.Bool(CentralLogging) ||
		v.String(LogDir) != "" {
		t.Error("a default is wrong")
	}
}

func TestDataDirIsAbsolute(t *testing.T) {
	for _, key := range []string{DataDir, RegistryBasePath} {
		s, _ := ControllerTable.find(key)
		if !strings.HasPrefix(s.Default, "/") {
			t.Errorf("%s is %q", key, s.Default)
		}
	}
}
