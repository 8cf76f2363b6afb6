package loadgen

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Profile describes how the plugin of one CI system uses the API: the behavior that loads a
// controller, not the plugin itself.
type Profile struct {
	Name              string
	Description       string
	ContentType       string        // of its JSON bodies; "": no header is sent
	TrailingNewline   bool          // its bodies end with one
	PollInterval      time.Duration // between two polls of an instance
	PollsWhileRunning bool          // it continues polling while the instance works
	FindsByList       bool          // it lists everything to find the instance of an external ID
	UsesScript        bool          // it starts instances with a monitored script
	SetsLabels        bool          // it sets a name and metadata
	IgnoresErrored    bool          // it makes no call about an instance that it saw in Error
	TerminateCalls    int           // how often it terminates an instance
}

// Profiles are the profiles of the existing plugins.
var Profiles = []Profile{
	{
		Name:        "jenkins",
		Description: "named instances, found by listing everything, looked at while they work, ended twice",
		ContentType: "application/json", PollInterval: 2 * time.Second, PollsWhileRunning: true, FindsByList: true,
		SetsLabels: true, TerminateCalls: 2,
	},
	{
		Name: "teamcity", Description: "lists everything instead of asking for one instance, leaves failed ones",
		ContentType: "application/json", PollInterval: 5 * time.Second, FindsByList: true, IgnoresErrored: true,
		TerminateCalls: 1,
	},
	{
		Name: "gitlab", Description: "bodies without a type, quick looks, nothing while the job runs",
		TrailingNewline: true, PollInterval: time.Second, SetsLabels: true, TerminateCalls: 1,
	},
	{
		Name: "github", Description: "JSON sent as a form, a monitored startup script, looked at while it works",
		ContentType: "application/x-www-form-urlencoded", PollInterval: 3 * time.Second, PollsWhileRunning: true,
		UsesScript: true, TerminateCalls: 1,
	},
	{
		Name: "packer", Description: "bodies without a type, a look a second until Started, no call after Error",
		TrailingNewline: true, PollInterval: time.Second, IgnoresErrored: true, TerminateCalls: 1,
	},
}

// ProfileNames returns the names of the profiles.
func ProfileNames() []string {
	names := make([]string, len(Profiles))
	for i, p := range Profiles {
		names[i] = p.Name
	}
	return names
}

// FindProfile returns the profile with a name.
func FindProfile(name string) (Profile, error) {
	i := slices.IndexFunc(Profiles, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, fmt.Errorf("unknown profile %q: want one of %s", name, strings.Join(ProfileNames(), ", "))
	}
	return Profiles[i], nil
}
