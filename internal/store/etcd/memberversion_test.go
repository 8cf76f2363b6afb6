package etcd

import (
	"strings"
	"testing"
)

func TestCheckVersion(t *testing.T) {
	for version, says := range map[string]string{
		"3.5.3": "", "3.5.21": "", "3.6.0": "", "3.7.3": "", "3.8.0": "", "3.7.0-rc.1": "",
		"3.4.23": "want 3.5.3 to 3.7", "3.5.2": "want 3.5.3 to 3.7", "2.3.8": "want 3.5.3 to 3.7",
		"": "unknown etcd version", "3": "unknown etcd version", "three.5": "unknown etcd version",
		"3.5.3.1": "unknown etcd version", "3.99999999.1": "unknown etcd version",
	} {
		err := checkVersion("http://a:2379", version)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: got %v, want %q", version, err, says)
		}
	}
	if isNewerVersion("3.7.9") || !isNewerVersion("3.8.0") || !isNewerVersion("4.0.0") {
		t.Error("what is newer than the tested versions is not recognized")
	}
}
