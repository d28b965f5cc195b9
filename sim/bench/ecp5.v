// What the pins of an ECP5 do, as far as a gigabit port needs it: for simulators. Delays, which are shorter than the steps here, are none.

module DELAYG(input A, output Z);
    parameter DEL_MODE = "USER_DEFINED";
    parameter DEL_VALUE = 0;
    assign Z = A;
endmodule

// D0 goes out while the clock is high, D1 while it is low, both as they were at the rising edge.
module ODDRX1F(input D0, input D1, input SCLK, input RST, output Q);
    reg high, low;
    always @(posedge SCLK) begin
        high <= D0;
        low <= D1;
    end
    assign Q = SCLK ? high : low;
endmodule

// Q0: what stood there at a rising edge, Q1: at the falling edge after it; both from the next rising edge on.
module IDDRX1F(input D, input SCLK, input RST, output reg Q0, output reg Q1);
    reg high, low;
    always @(posedge SCLK) begin
        high <= D;
        Q0 <= high;
        Q1 <= low;
    end
    always @(negedge SCLK) low <= D;
endmodule
