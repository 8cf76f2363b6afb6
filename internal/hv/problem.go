package hv

// ProblemReporter is implemented by drivers that notice that their host starts no guests until an operator acts.
type ProblemReporter interface {
	// Problem returns why the host starts no guests and what to do; "" while it starts them. It reads
	// memory only and may be called often.
	Problem() string
}

// OtherGuestCounter is implemented by drivers of hosts whose limit of macOS guests counts those of other programs.
type OtherGuestCounter interface {
	// OtherMacOSGuests returns how many macOS guests run on the host that no VM of the driver has, as far as the
	// driver sees them. It may be called often.
	OtherMacOSGuests() int
}
