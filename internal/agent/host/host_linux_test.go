package host

import "testing"

func TestValueOf(t *testing.T) {
	const release = "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"
	const cpuinfo = "processor\t: 0\nmodel name\t: Zeta CPU @ 2.0GHz\nmodel name\t: second\n"
	for _, c := range []struct{ text, key, separator, want string }{
		{release, "PRETTY_NAME", "=", "Debian GNU/Linux 12 (bookworm)"},
		{"PRETTY_NAME='Alpine Linux v3.20'", "PRETTY_NAME", "=", "Alpine Linux v3.20"},
		{cpuinfo, "model name", ":", "Zeta CPU @ 2.0GHz"},
		{"processor\t: 0\nCPU part\t: 0xd0c\n", "model name", ":", ""},
		{"", "PRETTY_NAME", "=", ""},
	} {
		if got := valueOf([]byte(c.text), c.key, c.separator); got != c.want {
			t.Errorf("%s of %q is %q, want %q", c.key, c.text, got, c.want)
		}
	}
}
