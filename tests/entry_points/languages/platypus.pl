#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# platypus.pl cuda|nvml LIBRARY opens the driver as Perl programs do and prints its answers.
use strict;
use warnings;
use FFI::Platypus 1.00;

my ( $api, $library ) = @ARGV;
my $ffi   = FFI::Platypus->new( api => 1, lib => $library );
my $count = -7;
if ( $api eq 'cuda' ) {
    my $init = $ffi->function( cuInit => ['unsigned int'] => 'int' )->call(0);
    my $rc = $ffi->function( cuDeviceGetCount => ['int*'] => 'int' )->call( \$count );
    print "cuInit=$init countRc=$rc\n";
}
else {
    my $init = $ffi->function( nvmlInit_v2 => [] => 'int' )->call();
    my $rc = $ffi->function( nvmlDeviceGetCount_v2 => ['int*'] => 'int' )->call( \$count );
    print "nvmlInit=$init countRc=$rc count=$count\n";
}
