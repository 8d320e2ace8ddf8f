module example.com/test-your-p4

go 1.26.0

require github.com/netsketch/netsketch v0.0.0

// Inside of netsketch's repository the example is built against the switch beside it.
// In a repository of your own remove this line and run
// go get github.com/netsketch/netsketch@latest
replace github.com/netsketch/netsketch => ../..
