package farm

import "testing"

func TestSupportedVersions(t *testing.T) {
	two := SupportedVersions{"Node protocol", 2, 3, "this controller", "update the controller", "update the agent"}
	one := SupportedVersions{"Node protocol", 1, 1, "this controller", "update the controller", "update the agent"}
	const from = "Node protocol version "
	for _, tt := range []struct {
		supported SupportedVersions
		version   int
		want      string
	}{
		{two, 2, ""},
		{two, 3, ""},
		{two, 4, from + "4 is not supported: this controller supports versions 2 to 3; update the controller"},
		{two, 1, from + "1 is not supported: this controller supports versions 2 to 3; update the agent"},
		{two, 0, from + "0 is not supported: this controller supports versions 2 to 3; update the agent"},
		{one, 0, ""},
		{one, 1, ""},
		{one, 2, from + "2 is not supported: this controller supports version 1; update the controller"},
		{one, -1, from + "-1 is not supported: this controller supports version 1; update the agent"},
	} {
		err := tt.supported.Check(tt.version)
		if text := errorText(err); text != tt.want || err != nil && CodeOf(err) != CodeRefused {
			t.Errorf("version %d: %q, want %q", tt.version, text, tt.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
