package forward

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// TestFilesOfFormerForwarders: an agent reads what the forwarder of a former build has written, which runs on over an
// upgrade of the agent.
func TestFilesOfFormerForwarders(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		configFile: `{"rules":[{"Name":"ssh","GuestPort":22,"HostIP":"127.0.0.1"}],` +
			`"screen":{"listen":"127.0.0.1","port":5901,"password_file":"vnc-password"}}`,
		portsFile: `{"pid":4711,"start_ticks":815,"rules":[{"Name":"ssh","GuestPort":22,"HostPort":10000}],` +
			`"vnc_port":5901}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := readConfig(dir)
	want := VNCConfig{Listen: "127.0.0.1", Port: 5901, PasswordFile: "vnc-password"}
	if err != nil || c.VNC == nil || *c.VNC != want || len(c.Rules) != 1 || c.Rules[0].GuestPort != 22 {
		t.Errorf("settings %+v, %v", c, err)
	}
	var p Ports
	if err := readJSON(dir, portsFile, &p); err != nil {
		t.Fatal(err)
	}
	if p.Process != (cliproc.Process{PID: 4711, StartTime: 815}) || p.VNCPort != 5901 || len(p.Rules) != 1 ||
		p.Rules[0] != (hv.PortRule{Name: "ssh", GuestPort: 22, HostPort: 10000}) {
		t.Errorf("ports %+v", p)
	}
}
